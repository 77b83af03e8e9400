"""The live page behind a real nginx and a real Apache, configured by the very lines of the how-to, over TLS.

Either runs unprivileged, as the group to which the page's socket is open, on a port of its own.
"""

from __future__ import annotations

import base64
import contextlib
import grp
import hashlib
import http.client
import json
import os
import pwd
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="no starlette (pip install '.[web]')")

from live_page_samples import answer
from pages import written
from test_live_page import Daemon

from asad.web import web_app
from asad.web.listeners import PageServer, Place, opened
from asad.web.page_feed import PageFeed
from asad.web.web_app import HEADERS, WebApp
from lab.slurm import free_ports

PATIENCE_S = 120.0
PAGE = "docs/how-to/live-page.md"
PASSWORD = "sesame"
HSTS = "max-age=31536000"
NGINX = """daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/proxy.log;
events {{ worker_connections 64; }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    gzip on; gzip_types *; gzip_proxied any; gzip_min_length 1;
    server {{
        listen 127.0.0.1:{port} ssl; server_name localhost;
        ssl_certificate {folder}/site.pem; ssl_certificate_key {folder}/site.key;
        add_header Strict-Transport-Security "{hsts}" always;
        include {folder}/asad.conf;
    }}
}}
"""
AUTHENTICATION = ("authn_core", "authn_file", "auth_basic", "authz_core", "authz_user")
MODULES = (
    "mpm_event",
    *AUTHENTICATION,
    "alias",
    "headers",
    "filter",
    "deflate",
    "proxy",
    "proxy_http",
    "ssl",
)
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
    "-addext subjectAltName=DNS:localhost -keyout site.key -out site.pem"
)
APACHE = """ServerRoot {folder}
ServerName localhost
PidFile apache.pid
DefaultRuntimeDir {folder}
ErrorLog proxy.log
Listen 127.0.0.1:{port} https
{modules}
StartServers 1
SSLSessionCache none
AddOutputFilterByType DEFLATE text/html text/css text/javascript
<VirtualHost 127.0.0.1:{port}>
    SSLEngine on
    SSLCertificateFile site.pem
    SSLCertificateKeyFile site.key
    Header always set Strict-Transport-Security "{hsts}"
    Include asad.conf
</VirtualHost>
"""
"""What a site has around the lines of the how-to; compression as Debian has it, in nginx of everything."""


@dataclass
class Site:
    """A proxy before the page."""

    port: int
    folder: Path
    web: WebApp
    daemon: Daemon
    group: str
    arrived: list[dict[bytes, bytes]] = field(default_factory=list)
    """Headers of every request that came to the page."""

    def connect(self) -> http.client.HTTPSConnection:
        trusted = ssl.create_default_context(cafile=str(self.folder / "site.pem"))
        return http.client.HTTPSConnection("localhost", self.port, timeout=PATIENCE_S, context=trusted)

    def ask(
        self, target: str, *headers: tuple[str, str], user: str = "ann"
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPSConnection]:
        """The beginning of the answer, and its connection."""
        connection = self.connect()
        connection.putrequest("GET", target)
        if user:
            secret = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
            connection.putheader("Authorization", f"Basic {secret}")
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse(), connection

    def get(self, target: str, *headers: tuple[str, str], user: str = "ann") -> tuple[int, Any, bytes]:
        """Status, headers and what came, of an answer that ends."""
        response, connection = self.ask(target, *headers, user=user)
        with contextlib.closing(connection):
            body = response.read()
            if response.headers["Content-Encoding"] == "gzip":
                body = zlib.decompress(body, 31)
            return response.status, response.headers, body


class Events:
    """Reads server-sent events as they come."""

    def __init__(self, site: Site, *headers: tuple[str, str], target: str = "/asad/events") -> None:
        self.response, self.connection = site.ask(target, *headers)
        assert self.response.status == 200
        self.unpack = zlib.decompressobj(31) if self.response.headers["Content-Encoding"] == "gzip" else None
        self.heard = b""

    def next(self) -> str:
        """The next one, or comment. Fails where none comes."""
        while b"\n\n" not in self.heard:
            block = self.response.read1(65536)
            assert block, "the stream has ended"
            self.heard += self.unpack.decompress(block) if self.unpack else block
        event, _, self.heard = self.heard.partition(b"\n\n")
        return event.decode()

    def change(self) -> dict[str, Any]:
        """The next one that is no sign of life."""
        while (event := self.next()).startswith(":"):
            pass
        found: dict[str, Any] = json.loads(event.split("data: ")[1])
        return found


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def proxy_command(name: str, folder: Path, port: int) -> list[str]:
    """Writes the proxy's configuration; what starts it."""
    language = {"nginx": "nginx", "apache2": "apache"}[name]
    (lines,) = written(PAGE, language)
    here = re.sub(r"/etc/\w+/asad\.htpasswd", str(folder / "asad.htpasswd"), lines)
    (folder / "asad.conf").write_text(here.replace("/run/asad-web/proxy.sock", str(folder / "proxy.sock")))
    digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
    (folder / "asad.htpasswd").write_text("".join(f"{user}:{{SHA}}{digest}\n" for user in ("ann", "root")))
    modules = "".join(
        f"LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so\n" for module in MODULES
    )
    around = NGINX if name == "nginx" else APACHE
    conf = folder / f"{name}.conf"
    conf.write_text(around.format(folder=folder, port=port, hsts=HSTS, modules=modules))
    if name == "nginx":
        return ["nginx", "-e", "stderr", "-c", str(conf)]
    return ["apache2", "-DFOREGROUND", "-f", str(conf)]


@contextlib.contextmanager
def page_at(place: Place, site: Site) -> Iterator[None]:
    """The page, served in a thread."""

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            site.arrived.append(dict(scope["headers"]))
        await site.web.asgi(scope, receive, send)

    with opened([place]) as sockets:
        server = PageServer(noting, [place], site.web.feed.close)
        thread = threading.Thread(target=server.run, args=(sockets,))
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)


@pytest.fixture(scope="module", params=["nginx", "apache2"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """The page, and one of the proxies before it."""
    os.environ["PATH"] += os.pathsep * ("/usr/sbin" not in os.environ["PATH"]) + "/usr/sbin"
    for program in (request.param, "openssl"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} (make system-packages)")
    is_root = os.geteuid() == 0
    account = pwd.getpwnam("www-data") if is_root else pwd.getpwuid(os.geteuid())
    become = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        folder, (port,) = Path(made), free_ports(1)
        subprocess.run(CERTIFICATE.split(), cwd=folder, check=True, capture_output=True)
        command = proxy_command(request.param, folder, port)
        for path in (folder, *folder.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)
        folder.chmod(0o755)
        patch.setattr(web_app, "PING_S", 0.3)
        daemon = Daemon()
        web = WebApp(PageFeed(Path("no.sock"), 0.05, daemon), "X-Remote-User")
        site = Site(port, folder, web, daemon, grp.getgrgid(account.pw_gid).gr_name)
        with page_at(Place("proxy", str(folder / "proxy.sock"), site.group), site):
            proxy = subprocess.Popen(
                [*(become if is_root else []), "setpriv", "--pdeathsig", "TERM", *command], cwd=folder
            )
            try:

                def is_up() -> bool:
                    assert proxy.poll() is None, f"{request.param} has ended"
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                        return True
                    return False

                until(is_up, f"{request.param} listens")
                until(lambda: web.feed.page.parts, "the page has asked the daemon")
                yield site
            finally:
                proxy.terminate()
                proxy.wait(PATIENCE_S)


def test_the_page_and_all_its_files_come_through_below_the_prefix(site: Site) -> None:
    status, headers, html = site.get("/asad/", ("Accept-Encoding", "gzip"))
    assert status == 200 and b"The cluster now" in html
    names = set(re.findall(r'(?:href|src)="(static/[\w.]+)"', html.decode()))
    assert len(names) > 5
    for name in names:
        status, headers, content = site.get(f"/asad/{name}", ("Accept-Encoding", "gzip"))
        assert (status, content) == (200, site.web.static[name[7:]][0]), name
        assert headers["Content-Type"].startswith("text/")
    status, headers, _ = site.get("/asad", user="ann")
    assert status in (301, 302) and headers["Location"] == f"https://localhost:{site.port}/asad/"


def test_what_the_page_forbids_browsers_and_what_the_site_asks_of_them_arrives(site: Site) -> None:
    for target in (
        "/asad/",
        "/asad/static/live.js",
        "/asad/nowhere",
        "/asad/events/",
        "/asad/static/%2e%2e/x",
    ):
        status, headers, _ = site.get(target)
        assert status in (200, 404), "never to an address of the page's own making"
        for name, value in HEADERS.items():
            if name != "Cache-Control":
                assert headers.get_all(name) == [value], (target, name)
        assert headers["Strict-Transport-Security"] == HSTS


def test_who_has_no_password_does_not_come_to_the_page(site: Site) -> None:
    before = len(site.arrived)
    for target in ("/asad/", "/asad/events", "/asad/static/live.js", "/asad/explain?job=900"):
        assert site.get(target, ("X-Remote-User", "root"), user="")[0] == 401
        assert site.get(target, ("X-Remote-User", "root"), user="eve")[0] == 401
    assert len(site.arrived) == before


@pytest.mark.parametrize(
    "claims",
    [
        [],
        [("X-Remote-User", "root")],
        [("x-remote-user", "root"), ("X-REMOTE-USER", "bob")],
        [("X_Remote_User", "root")],
        [("X-Remote-User", "root"), ("Connection", "close, X-Remote-User")],
    ],
)
def test_the_proxy_names_the_user_whatever_the_browser_claims(
    site: Site, claims: list[tuple[str, str]]
) -> None:
    """Ann sees her job and nobody else's; at the worst, where she has the header removed, none."""
    removed = (
        any(name == "Connection" for name, _ in claims)
        and site.get("/asad/explain?job=900", *claims)[0] == 404
    )
    assert removed or site.get("/asad/explain?job=900", *claims)[0] == 200
    assert site.get("/asad/explain?job=901", *claims)[0] == 404
    assert site.arrived[-1].get(b"x-remote-user", b"") == (b"" if removed else b"ann")
    assert site.get("/asad/explain?job=901", *claims, user="root")[0] == (404 if removed else 200)
    assert b"authorization" not in site.arrived[-1], "nobody's password goes further than the proxy"


def test_changes_come_through_as_they_happen(site: Site) -> None:
    for accepts in ("identity", "gzip"):
        events = Events(site, ("Accept-Encoding", accepts))
        began = time.monotonic()
        whole = events.change()
        assert (
            whole["whole"] and whole["head"]["viewer"] == "ann" and whole["queue"]["order"] == ["900", "902"]
        )
        assert any(events.next().startswith(":") for _ in range(3)), "a sign of life comes on its own"
        following = answer(len(site.daemon.asked) + 5)
        following["nodes"]["used"][1] = 3.25
        site.daemon.answer = following
        assert events.change()["nodes"]["set"]["n0001"][2] == 3.25
        print(f"{accepts}: {time.monotonic() - began:.2f} s")
        events.connection.close()
        site.daemon.answer = answer(0)


def test_whoever_goes_is_noticed(site: Site) -> None:
    watching = [Events(site) for _ in range(3)]
    for events in watching:
        events.change()
    until(lambda: site.web.feed.lookers >= 3, "three look")
    for events in watching:
        events.connection.close()
    until(lambda: site.web.feed.lookers == 0, "nobody looks any more")


def test_many_requests_share_a_connection(site: Site) -> None:
    connection = site.connect()
    secret = base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    for target, status in (("/asad/", 200), ("/asad/nowhere", 404), ("/asad/explain?job=900", 200)):
        connection.request("GET", target, headers={"Authorization": f"Basic {secret}"})
        response = connection.getresponse()
        assert (response.status, response.version) == (status, 11) and response.read()
    connection.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_nobody_but_the_proxys_group_opens_the_socket(site: Site) -> None:
    code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    path = str(site.folder / "proxy.sock")

    def errors(*identity: str) -> str:
        command = ["setpriv", *identity, "/usr/bin/python3", "-c", code, path]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S).stderr

    nobody = pwd.getpwnam("nobody").pw_uid
    proxys = grp.getgrnam(site.group).gr_gid
    assert "PermissionError" in errors(f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups")
    assert errors(f"--reuid={nobody}", f"--regid={proxys}", "--clear-groups") == ""
