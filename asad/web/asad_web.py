"""`asad-web`: the live page over a daemon's control socket."""

from __future__ import annotations

import logging
import re
import signal
import sys
from pathlib import Path

import click

from asad import __version__
from asad.cli.live import SOCKET, control_socket
from asad.cli.services import run_service
from asad.errors import UsageError
from asad.systemd import notify

DEFAULT = "/run/asad-web/page.sock"
log = logging.getLogger(__name__)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="asad-web")
@SOCKET
@click.option(
    "--listen",
    "listen",
    metavar="PATH|HOST:PORT",
    multiple=True,
    help=f"Where browsers come: a unix socket, at which the kernel names who looks, or an address of this machine, at "
    f"which nobody is known and no job is shown. May be given several times. [default: {DEFAULT}]",
)
@click.option(
    "--proxy-socket",
    metavar="PATH",
    help="A unix socket for the site's proxy, which names who looks in a header.",
)
@click.option("--proxy-group", metavar="GROUP", help="The proxy's group: it alone may open that socket.")
@click.option(
    "--identity-header",
    metavar="NAME",
    default="X-Remote-User",
    show_default=True,
    help="Where the proxy names the user; elsewhere than at its socket the header is passed over.",
)
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name of this machine by which browsers come, beside localhost. May be given several times.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.5),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the daemon is asked while somebody looks, however many do.",
)
def asad_web(
    socket_path: str | None,
    listen: tuple[str, ...],
    proxy_socket: str | None,
    proxy_group: str | None,
    identity_header: str,
    hosts: tuple[str, ...],
    interval: float,
) -> None:
    """Show the cluster in browsers as the daemon sees it: live, read-only, without a right of its own.

    \b
    Examples:
      asad-web --listen 127.0.0.1:9621
      asad-web --listen /run/asad-web/page.sock
      asad-web --proxy-socket /run/asad-web/proxy.sock --proxy-group www-data
    """
    from asad.web.listeners import PageServer, Place, opened, place_of

    places = [place_of(text) for text in listen or (() if proxy_socket else (DEFAULT,))]
    if (proxy_socket is None) != (proxy_group is None):
        raise UsageError(
            "--proxy-socket and --proxy-group go together: whoever opens the socket names the user"
        )
    if proxy_socket is not None:
        places.append(Place("proxy", proxy_socket, proxy_group or ""))
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", identity_header):
        raise UsageError("--identity-header: a name of letters, digits and hyphens, such as X-Remote-User")
    # uvicorn raises the signal again that ended it: what was opened is closed then, too
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")

    from asad.web.page_feed import PageFeed
    from asad.web.web_app import WebApp

    feed = PageFeed(Path(control_socket(socket_path)), interval)
    web = WebApp(feed, identity_header, hosts)
    with opened(places) as sockets:
        for place in places:
            log.info("the page is at %s", place.address)
        notify("READY=1")
        PageServer(web.asgi, places, feed.close).run(sockets)


def main() -> None:
    """Entry point. Exit status: 0 stopped, 1 a fatal error, 2 wrong usage."""
    run_service(asad_web, "asad-web")
