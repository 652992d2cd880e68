"""Runs an OpenID provider as a process: Canaille, with people, groups and one client.

Usage: `python -m support.openid_provider PORT CLIENT_BASE`, with the groups of each person as JSON
on standard input. Each start makes a new key.
"""

import json
import sys

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from joserfc.jwk import RSAKey
from werkzeug.serving import run_simple

CLIENT, SECRET, PASSWORD = "console", "a secret of the console", "correct horse battery"


def main() -> None:
    """Serve until the process is ended."""
    port, base = int(sys.argv[1]), sys.argv[2]
    settings = {
        "SECRET_KEY": "x" * 32,
        "SERVER_NAME": f"127.0.0.1:{port}",
        "PREFERRED_URL_SCHEME": "http",
        "CANAILLE": {"DATABASE": "memory", "JAVASCRIPT": False, "HTMX": False},
        "CANAILLE_OIDC": {"ACTIVE_JWKS": [RSAKey.generate_key(2048).as_pem(private=True).decode()]},
    }
    app = create_app(settings)
    with app.app_context(), Backend.instance.session():
        _fill(json.load(sys.stdin), base)
    run_simple("127.0.0.1", port, app, threaded=True)


def _fill(people: dict[str, list[str]], base: str) -> None:
    members: dict[str, list[object]] = {}
    for name, groups in people.items():
        user = models.User(
            user_name=name,
            family_name=name,
            formatted_name=name,
            emails=[f"{name}@example.com"],
            password=PASSWORD,
        )
        Backend.instance.save(user)
        for group in groups:
            members.setdefault(group, []).append(user)
    for group, users in members.items():
        Backend.instance.save(models.Group(display_name=group, members=users))
    client = models.Client(
        client_id=CLIENT,
        client_secret=SECRET,
        client_name="console",
        client_uri=base,
        redirect_uris=[f"{base}/login/callback"],
        post_logout_redirect_uris=[f"{base}/login"],
        grant_types=["authorization_code"],
        response_types=["code"],
        scope=["openid", "email", "profile", "groups"],
        token_endpoint_auth_method="client_secret_basic",
    )
    Backend.instance.save(client)
    client.audience = [client]
    Backend.instance.save(client)


if __name__ == "__main__":
    main()
