"""Where packages come from: the indexes, certificates, proxies and time-outs that the user has set.

Nothing else of the user's settings reaches an installer. ``PIP_TARGET``, ``PIP_PREFIX`` or ``PIP_DRY_RUN``
would leave an environment empty, ``UV_CONSTRAINT`` or a ``uv.toml`` in a parent folder would change what it
holds. What passes is read from pip's and uv's variables and files, and given to both installers in their own
words, so that a mirror that is set for one of them serves the other too.

Files and their order follow pip 23.2.1, ``_internal/configuration.py`` (``get_configuration_files``,
``OVERRIDE_ORDER``), and https://docs.astral.sh/uv/concepts/configuration-files for uv 0.13: of uv's files the
user's and the system's count, never those of a project.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_actions.errors import WrongSurroundings
from kernel_actions.named_tuple import NamedTuple

# What an installer needs of a process's variables to run at all. LD_LIBRARY_PATH: some interpreters do not
# start without it. NETRC names a file with the passwords of indexes.
_KEPT = frozenset({
    "DYLD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "LOGNAME", "NETRC", "PATH",
    "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "USER",
})  # fmt: skip
_PROXY = re.compile(r"(?:https?|all|no)_proxy", re.IGNORECASE)
# uv's named indexes take their users and passwords from these.
_INDEX_LOGIN = re.compile(r"UV_INDEX_[A-Z0-9_]+_(?:USERNAME|PASSWORD)")
_IS_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NAMED = re.compile(r"^[A-Za-z0-9_-]+=")
# The words of pip for "yes" (``_internal/utils/misc.py``, ``strtobool``).
_YES = frozenset({"y", "yes", "t", "true", "on", "1"})


class Sources(NamedTuple):
    """What the user has set. Empty values are not set.

    ``default_index`` is the package index, ``further`` are those beside it (uv allows ``name=address``),
    ``links`` folders and pages with wheels. ``certificates`` is a file or a folder of authorities,
    ``timeout`` in seconds.
    """

    default_index: str = ""
    further: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    without_index: bool = False
    certificates: str = ""
    client_certificate: str = ""
    trusted_hosts: tuple[str, ...] = ()
    proxy: str = ""
    timeout: str = ""
    retries: str = ""
    keyring: str = ""
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether packages come from PyPI alone."""
        return not (self.default_index or self.further or self.links or self.without_index)

    def for_uv(self) -> dict[str, str]:
        """The variables of a uv that takes packages from here. There is none for ``without_index``."""
        named = {
            "UV_DEFAULT_INDEX": self.default_index,
            "UV_INDEX": " ".join(self.further),
            "UV_FIND_LINKS": ",".join(self.links),
            "UV_INSECURE_HOST": " ".join(self.trusted_hosts),
            "UV_HTTP_TIMEOUT": self.timeout,
            "UV_HTTP_RETRIES": self.retries,
            "UV_KEYRING_PROVIDER": self.keyring,
            "SSL_CLIENT_CERT": self.client_certificate,
            "NO_COLOR": "1",
        }
        if self.certificates:
            named["SSL_CERT_DIR" if Path(self.certificates).is_dir() else "SSL_CERT_FILE"] = self.certificates
        else:
            # As pip and Python do, trust what the machine trusts.
            named["UV_SYSTEM_CERTS"] = "1" if _has_certificates() else ""
        return self._with(named)

    def for_pip(self) -> dict[str, str]:
        """The variables of a pip that takes packages from here."""
        named = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": self.default_index,
            "PIP_EXTRA_INDEX_URL": " ".join(_NAMED.sub("", one) for one in self.further),
            "PIP_FIND_LINKS": " ".join(self.links),
            "PIP_NO_INDEX": "1" if self.without_index else "",
            "PIP_TRUSTED_HOST": " ".join(self.trusted_hosts),
            "PIP_CERT": self.certificates,
            "PIP_CLIENT_CERT": self.client_certificate,
            "PIP_TIMEOUT": self.timeout,
            "PIP_RETRIES": self.retries,
            "PIP_KEYRING_PROVIDER": self.keyring,
        }
        return self._with(named)

    def _with(self, named: Mapping[str, str]) -> dict[str, str]:
        variables = dict(self.variables)
        if self.proxy:
            variables |= {"HTTP_PROXY": self.proxy, "HTTPS_PROXY": self.proxy, "https_proxy": self.proxy}
            variables |= {"http_proxy": self.proxy}
        return variables | {name: value for name, value in named.items() if value}


def read(environment: Mapping[str, str]) -> Sources:
    """What the user has set, by the variables in ``environment`` and the files that they and the home name.

    Raises ``WrongSurroundings`` for a value that no installer can use; it names the variable or the file.
    """
    pip, uv = _of_pip(environment), _of_uv(environment)
    index = _first(uv, "UV_DEFAULT_INDEX", "UV_INDEX_URL") or pip.get("index-url", "")
    further = [*_words(_first(uv, "UV_INDEX")), *_words(_first(uv, "UV_EXTRA_INDEX_URL"))]
    further += _words(pip.get("extra-index-url", ""))
    links = [*re.split(r"[,\s]+", _first(uv, "UV_FIND_LINKS")), *_words(pip.get("find-links", ""))]
    certificates = _named(environment, "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    timeout = _first(uv, "UV_HTTP_TIMEOUT", "UV_REQUEST_TIMEOUT") or pip.get("timeout", "")
    retries = _first(uv, "UV_HTTP_RETRIES") or pip.get("retries", "")
    for name, value in (
        ("UV_HTTP_TIMEOUT or PIP_TIMEOUT", timeout),
        ("UV_HTTP_RETRIES or PIP_RETRIES", retries),
    ):
        if value and not re.fullmatch(r"\d{1,6}", value):
            raise WrongSurroundings(
                f"{name}: {value[:40]!r} is not a whole number", repair="set a number, or unset it"
            )
    return Sources(
        default_index=index,
        further=tuple(dict.fromkeys(further)),
        links=tuple(dict.fromkeys(filter(None, map(_absolute, links)))),
        without_index=(_first(uv, "UV_NO_INDEX") or pip.get("no-index", "")).lower() in _YES,
        certificates=pip.get("cert", "") or certificates,
        client_certificate=pip.get("client-cert", "") or environment.get("SSL_CLIENT_CERT", ""),
        trusted_hosts=(*_words(_first(uv, "UV_INSECURE_HOST")), *_words(pip.get("trusted-host", ""))),
        proxy=pip.get("proxy", ""),
        timeout=timeout,
        retries=retries,
        keyring=_first(uv, "UV_KEYRING_PROVIDER") or pip.get("keyring-provider", ""),
        variables=tuple((name, value) for name, value in environment.items() if _passes(name, value)),
    )


def _passes(name: str, value: str) -> bool:
    return bool(value) and (name in _KEPT or bool(_PROXY.fullmatch(name) or _INDEX_LOGIN.fullmatch(name)))


def _of_pip(environment: Mapping[str, str]) -> dict[str, str]:
    """pip's settings for ``pip install``, by their names in its files."""
    settings: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in _files_of_pip(environment):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError) as error:
            raise WrongSurroundings(
                f"{path}: pip's settings cannot be read: {error}", repair="correct the file, or remove it"
            ) from error
        for section, values in settings.items():
            if parser.has_section(section):
                values.update({name.replace("_", "-"): value for name, value in parser.items(section)})
    found = settings["global"] | settings["install"]
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    if "default-timeout" in found:
        found["timeout"] = found["default-timeout"]
    return found


def _files_of_pip(environment: Mapping[str, str]) -> Iterator[Path]:
    """pip's files, those that override others last."""
    own = environment.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    home = Path(os.path.expanduser("~"))
    if sys.platform == "darwin":
        support = Path("Library", "Application Support", "pip")
        yield Path("/", support, "pip.conf")
    else:
        for folder in (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
            yield Path(folder, "pip", "pip.conf")
        yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    if sys.platform == "darwin" and (home / support).is_dir():
        yield home / support / "pip.conf"
    else:
        yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config", "pip", "pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if own:
        yield Path(own)


def _of_uv(environment: Mapping[str, str]) -> dict[str, str]:
    """uv's settings for indexes, by its variables, which override its files."""
    found: dict[str, str] = {}
    if sys.version_info >= (3, 11) and not environment.get("UV_NO_CONFIG"):
        import tomllib

        home = Path(os.path.expanduser("~"))
        for path in (
            Path("/etc/uv/uv.toml"),
            Path(environment.get("XDG_CONFIG_HOME") or home / ".config", "uv", "uv.toml"),
        ):
            try:
                found |= _from_uv_toml(tomllib.loads(path.read_text(encoding="utf-8")))
            except (OSError, UnicodeDecodeError):
                continue
            except tomllib.TOMLDecodeError as error:
                raise WrongSurroundings(
                    f"{path}: uv's settings cannot be read: {error}", repair="correct the file, or remove it"
                ) from error
    return found | {name: value for name, value in environment.items() if name.startswith("UV_") and value}


def _from_uv_toml(document: Mapping[str, Any]) -> dict[str, str]:
    """What a ``uv.toml`` says about indexes, as variables."""
    found: dict[str, str] = {}
    further: list[str] = []
    for table in (document, document.get("pip")):
        if not isinstance(table, dict):
            continue
        for index in table.get("index") or ():
            if isinstance(index, dict) and isinstance(index.get("url"), str) and not index.get("explicit"):
                named = f"{index['name']}={index['url']}" if index.get("name") else index["url"]
                if index.get("default"):
                    found["UV_DEFAULT_INDEX"] = named
                else:
                    further.append(named)
        for key, name in (("index-url", "UV_INDEX_URL"), ("keyring-provider", "UV_KEYRING_PROVIDER")):
            if isinstance(table.get(key), str):
                found[name] = table[key]
        for key, name in (
            ("extra-index-url", "UV_EXTRA_INDEX_URL"),
            ("find-links", "UV_FIND_LINKS"),
            ("allow-insecure-host", "UV_INSECURE_HOST"),
        ):
            values = [one for one in table.get(key) or () if isinstance(one, str)]
            if values:
                found[name] = " ".join(values)
        if table.get("no-index") is True:
            found["UV_NO_INDEX"] = "1"
    return found | ({"UV_INDEX": " ".join(further)} if further else {})


def _absolute(link: str) -> str:
    """A folder or page with wheels, for an installer that runs in another folder; empty for a folder that is
    not there: pip warns of one, and uv would fail."""
    if not link or _IS_ADDRESS.match(link):
        return link
    path = os.path.abspath(os.path.expanduser(link))
    return path if os.path.exists(path) else ""


def _named(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _first(settings: Mapping[str, str], *names: str) -> str:
    return _named(settings, *names)


def _words(text: str) -> list[str]:
    return text.split()


def _has_certificates() -> bool:
    """Whether this machine has a store of certificates; a bare container may have none, and uv has its
    own."""
    import ssl

    paths = ssl.get_default_verify_paths()
    has_folder = bool(paths.capath and any(os.scandir(paths.capath)))
    return bool(paths.cafile) or has_folder
