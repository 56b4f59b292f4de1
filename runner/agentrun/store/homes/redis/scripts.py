"""The Lua scripts of the Redis home: one for each change, so that the check of the epoch and the write are one step.

A script changes nothing unless all its checks hold, and touches only the keys that it is given, which are in one slot
of a cluster. It returns 1 if it did its work and 0 if the job is another's. A call of Redis inside Lua takes some 8,000
values at most, so long lists are passed on in parts; and a number is passed as text, because newer servers write
100000000 as 1e+8.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

FORM = "1"
"""The version of the layout, in the head of each job."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the name by which the server knows it once it has run it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


_OURS = """
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
"""
"""KEYS[1] is the head, ARGV[1] our epoch."""

_OURS_IF_NAMED = """
if ARGV[1] ~= '' and redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
"""

# ---- the lease

LOOK = Script("""
local found = redis.call('HMGET', KEYS[1], 'form', 'epoch', 'holder', 'seq', 'state')
found[6] = redis.call('EXISTS', KEYS[2])
return found
""")
"""KEYS: head, lease. Only reads."""

TAKE = Script("""
if (redis.call('HGET', KEYS[1], 'epoch') or '0') ~= ARGV[1] then return 0 end
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder and holder ~= ARGV[2] and redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'form', ARGV[3], 'epoch', ARGV[4], 'holder', ARGV[5])
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[6])
return 1
""")
"""KEYS: head, lease. ARGV: epoch seen, holder seen, form, new epoch, holder, milliseconds."""

BEAT = Script(f"""{_OURS}
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1
""")
"""KEYS: head, lease. ARGV: epoch, milliseconds."""

GIVE = Script(f"""{_OURS}
redis.call('HDEL', KEYS[1], 'holder')
redis.call('DEL', KEYS[2])
return 1
""")
"""KEYS: head, lease. ARGV: epoch."""

# ---- the run

COMMIT = Script(f"""{_OURS}
local seq = redis.call('HGET', KEYS[1], 'seq')
if ARGV[2] == '' and (seq or redis.call('HEXISTS', KEYS[5], ARGV[5]) == 1) then return 0 end
if ARGV[2] ~= '' and seq ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'seq', ARGV[3], 'state', ARGV[4], 'run', ARGV[5])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[6])
if #ARGV < 10 then return 1 end
local some, bytes = {{}}, 0
for i = 10, #ARGV do
  some[#some + 1] = string.format('%.0f', tonumber(ARGV[8]) + i - 10)
  some[#some + 1] = ARGV[i]
  bytes = bytes + #ARGV[i] + 1
  if #some == 2000 or i == #ARGV then
    redis.call('HSET', KEYS[3], unpack(some))
    some = {{}}
  end
end
redis.call('HSET', KEYS[3], 'end', ARGV[9])
redis.call('HINCRBY', KEYS[3], 'bytes', string.format('%.0f', bytes))
redis.call('SADD', KEYS[4], ARGV[7])
return 1
""")
"""KEYS: head, lease, records, journals, ended. ARGV: epoch, seq before or nothing for the first commit, seq, state,
run, milliseconds, journal, first ref, the ref after the last, lines."""

STAGE = Script("""
local bytes = 0
for i = 4, #ARGV do
  local ref = string.format('%.0f', tonumber(ARGV[2]) + i - 4)
  if redis.call('HSETNX', KEYS[1], ref, ARGV[i]) == 1 then bytes = bytes + #ARGV[i] + 1 end
end
if tonumber(redis.call('HGET', KEYS[1], 'end') or 0) < tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[1], 'end', ARGV[3])
end
redis.call('HINCRBY', KEYS[1], 'bytes', string.format('%.0f', bytes))
redis.call('SADD', KEYS[2], ARGV[1])
return 1
""")
"""KEYS: records, journals. ARGV: journal, first ref, the ref after the last, lines. Some may be there already."""

FINISH = Script(f"""{_OURS}
if redis.call('HGET', KEYS[1], 'run') == ARGV[2] then redis.call('HDEL', KEYS[1], 'seq', 'state', 'run') end
redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[3])
return 1
""")
"""KEYS: head, ended. ARGV: epoch, run, its journal and summary."""

REPLACE = Script(f"""{_OURS}
redis.call('HDEL', KEYS[1], 'seq', 'state', 'run')
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'seq', ARGV[2], 'state', ARGV[3], 'run', ARGV[4]) end
redis.call('UNLINK', KEYS[2])
for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
""")
"""KEYS: head, ended. ARGV: epoch; seq, state and run, or nothing for each; then run, journal and summary of each."""

FORGET = Script(f"""{_OURS}
for i = 4, #KEYS do
  redis.call('UNLINK', KEYS[i])
  redis.call('SREM', KEYS[3], ARGV[i - 2])
end
for i = #KEYS - 1, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
return 1
""")
"""KEYS: head, ended, journals, records of each journal. ARGV: epoch, each journal, each run."""

CLEAR = Script(f"""{_OURS}
redis.call('HDEL', KEYS[1], 'seq', 'state', 'run')
for i = 4, #KEYS do redis.call('UNLINK', KEYS[i]) end
for i = 3, #ARGV do
  if i - 2 <= tonumber(ARGV[2]) then redis.call('SREM', KEYS[2], ARGV[i]) else redis.call('ZREM', KEYS[3], ARGV[i]) end
end
return 1
""")
"""KEYS: head, journals, names of the files, ended, the records of each journal, each file. ARGV: epoch, how many
journals, each journal, the name of each file."""

# ---- beside the run

PIECE = Script("""
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
""")
"""KEYS: new file. ARGV: field, value, milliseconds until a file that nobody completes is gone."""

PUT = Script(f"""{_OURS_IF_NAMED}
if redis.call('HGET', KEYS[2], 'id') ~= ARGV[2] then return -1 end
redis.call('HSET', KEYS[2], 'count', ARGV[3])
redis.call('PERSIST', KEYS[2])
redis.call('RENAME', KEYS[2], KEYS[3])
redis.call('ZADD', KEYS[4], 0, ARGV[4])
return 1
""")
"""KEYS: head, new file, file, names of the files. ARGV: epoch or nothing, id of the new file, pieces, name.

Returns -1 if the new file is gone."""

PUT_NEW = Script("""
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'count', '1', '0', ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[3])
return 1
""")
"""KEYS: file, names of the files. ARGV: id, text, name."""

DROP = Script(f"""{_OURS_IF_NAMED}
for i = 3, #KEYS do
  redis.call('UNLINK', KEYS[i])
  redis.call('ZREM', KEYS[2], ARGV[i - 1])
end
return 1
""")
"""KEYS: head, names of the files, each file. ARGV: epoch or nothing, each name."""
