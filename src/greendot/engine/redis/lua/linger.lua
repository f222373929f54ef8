-- The connection is gone; the session counts for the grace. Answers what remains, or -1 if the session has moved on.
-- ARGV from 6: session, incarnation, connection, grace, silent
local v = verb()
local session, node, conn, grace, silent = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
if not v.now then return other_time() end
local record = load_record(v)
if not record then return -1 end
local before = told(record)
prune(record, v.nodes, v.now)  -- a linger that is over must not be prolonged
local entry = find_entry(record, session, node, conn)
if entry then entry.deadline, entry.heard = v.now + grace, v.now - silent end
settle(v, record, before)
return answer(entry and grace or -1)
