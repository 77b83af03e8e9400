"""The live page: a process of its own (`asad-web`) that asks the daemon over its control socket, and shows.

It changes nothing, holds no right that the socket does not give it, and asks the daemon once for everybody who looks.
Nothing imports this room.
"""
