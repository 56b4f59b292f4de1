"""The page: jobs, items, failures, review and results in a browser on this machine. HTML made by the server.

A request passes `guard` (who may ask), `app` (which page), and one of the pages, which reads through `agentrun.views`
and writes through `agentrun.people.desk` alone. `markup` is the only way to HTML.
"""
