"""The seeded bugs, each with the tests that must catch it; see `seeding` for how their places are named."""

from __future__ import annotations

from crash.mutants import channel, cluster, disk, files, frameworks, night, places, runs, stores

MUTANTS = [
    *disk.MUTANTS,
    *channel.MUTANTS,
    *files.MUTANTS,
    *places.MUTANTS,
    *runs.MUTANTS,
    *night.MUTANTS,
    *frameworks.MUTANTS,
    *stores.MUTANTS,
    *cluster.MUTANTS,
]
