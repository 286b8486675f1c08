"""The console: web pages in front of the coordinator's API, on the same port.

Every page is rendered here from results of the API for the user who is logged in; everything a page can do,
the API can do. A coordinator serves the pages with `front`.
"""

from sparrowmq.console.app import front

__all__ = ["front"]
