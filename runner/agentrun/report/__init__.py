"""The morning report: what a run did, what went wrong and what to do next, as one file to read or to send.

`reading` makes a `Report` in one pass over the records; `page` and `markdown` are its two forms; `writing` puts it in
its place.
"""
