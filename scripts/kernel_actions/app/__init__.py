"""The program that all commands share."""
