"""How `nats` and the library nats-py connect as a user, as a person types it.

No line has the secret: each reads the file of the user.
"""

from shlex import quote

from nodepool.auth.rights import inbox_prefix


def nats_command(url: str, name: str, file: str, ca_file: str = "", *, login: str = "") -> str:
    """Return the beginning of the command `nats`.

    Others on the same machine can read the arguments of a program, so that a password goes to it in
    a variable.

    name: the user. file: the file with the key or the password of the user.
    ca_file: the certificates to trust; "" for those of the system, or without TLS.
    login: how the server names a user who has a password; "" for a user with a key.
    """
    options = nats_options(url, name, "" if login else file, ca_file)
    variables = f'NATS_USER={login} NATS_PASSWORD="$(tail -n 1 {quote(file)})" ' if login else ""
    return f"{variables}nats {options}"


def nats_options(url: str, name: str, key_file: str, ca_file: str = "") -> str:
    """Return the options with which `nats` connects; `key_file` is "" if the user has no key."""
    key = f" --nkey {quote(key_file)}" if key_file else ""
    trust = f" --tlsca {quote(ca_file)}" if ca_file else ""
    return f"--server {url}{key} --inbox-prefix {inbox_prefix(name)}{trust}"


def nats_py_call(url: str, name: str, file: str, ca_file: str = "", *, login: str = "") -> str:
    """Return the call with which nats-py connects; the parameters are those of `nats_command`."""
    secret = f"pathlib.Path({file!r}).read_text().split()[-1]"
    shown = f"user={login!r}, password={secret}" if login else f"nkeys_seed_str={secret}"
    trust = f", tls=ssl.create_default_context(cafile={ca_file!r})" if ca_file else ""
    return f"nats.connect({url!r}, {shown}, inbox_prefix={inbox_prefix(name)!r}{trust})"
