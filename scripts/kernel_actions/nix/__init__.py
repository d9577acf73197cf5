"""The only package that speaks to Nix."""

from kernel_actions.nix.evaluation import is_installed, read_files, torch_versions

__all__ = ["is_installed", "read_files", "torch_versions"]
