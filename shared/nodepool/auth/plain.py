"""How `nats` and the library nats-py connect with the key of a user, as a person types it."""

from shlex import quote

from nodepool.auth.rights import inbox_prefix


def nats_options(url: str, name: str, key_file: str, ca_file: str = "") -> str:
    """Return the options with which `nats` connects.

    name: the user. key_file: the file with the key of the user.
    ca_file: the certificates to trust; "" for those of the system, or without TLS.
    """
    trust = f" --tlsca {quote(ca_file)}" if ca_file else ""
    return f"--server {url} --nkey {quote(key_file)} --inbox-prefix {inbox_prefix(name)}{trust}"


def nats_py_call(url: str, name: str, key_file: str, ca_file: str = "") -> str:
    """Return the call with which nats-py connects; the parameters are those of `nats_options`."""
    seed = f"pathlib.Path({key_file!r}).read_text().split()[-1]"
    trust = f", tls=ssl.create_default_context(cafile={ca_file!r})" if ca_file else ""
    return (
        f"nats.connect({url!r}, nkeys_seed_str={seed}, inbox_prefix={inbox_prefix(name)!r}{trust})"
    )
