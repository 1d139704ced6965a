"""A small SMTP server for tests, on aiosmtpd.

argv: port, folder, and a JSON object of options: tls (certificate, key, implicit), user, password.
Every accepted message is written to the folder as N.json. Addresses choose the outcome:
refused@..., later@... at RCPT; a subject with "reject" or "busy" at the end of DATA.
"""

import asyncio
import json
import os
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

port, folder, options = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])


class Post:
    count = 0

    async def handle_RCPT(self, server, session, envelope, address, rcpt_options):
        if address.startswith("refused@"):
            return "550 5.1.1 no such user"
        if address.startswith("later@"):
            return "451 4.3.0 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        content = envelope.content.decode("utf-8", "replace")
        head = content.split("\r\n\r\n")[0]
        if "reject" in head:
            return "554 5.7.1 not wanted"
        if "busy" in head:
            return "452 4.2.2 mailbox full"
        Post.count += 1
        message = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "content": content,
            "tls": session.ssl is not None or bool(options.get("tls", {}).get("implicit")),
            "user": session.auth_data,
        }
        path = os.path.join(folder, str(Post.count))
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(message, file)
        os.rename(path + ".tmp", path + ".json")
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    if data.login.decode() == options["user"] and data.password.decode() == options["password"]:
        return AuthResult(success=True, auth_data=options["user"])
    return AuthResult(success=False, handled=False)


def ended():
    """Standard input ends when the test process ends, also if it is killed."""
    if not os.read(0, 1):
        os._exit(0)


async def main():
    tls = options.get("tls")
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls["certificate"], tls["key"])
    implicit = bool(tls and tls.get("implicit"))
    more = {"hostname": "mail.test", "enable_SMTPUTF8": True, "data_size_limit": 4 * 1024 * 1024}
    if options.get("user"):
        more.update(authenticator=authenticate, auth_required=True, auth_require_tls=False)
    if context and not implicit:
        more.update(tls_context=context, require_starttls=True)

    loop = asyncio.get_running_loop()
    make = lambda: SMTP(Post(), loop=loop, **more)
    server = await loop.create_server(make, "127.0.0.1", port, ssl=context if implicit else None)
    loop.add_reader(0, ended)
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main())
