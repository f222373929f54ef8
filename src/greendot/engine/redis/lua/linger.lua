-- Start the grace of a session without a connection. Returns the grace, or -1 if the session has another connection.
-- With grace 0, the session may also have an earlier connection of this node: the touch of the later one was lost.
-- ARGV from 7: session, incarnation, connection, grace, silent
local v, refused = verb()
if refused then return refused end
local session, node, conn, grace, silent = ARGV[7], ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local record = load_record(v)
if not record then return -1 end
local before = told(record)
prune(record, v.nodes, v.now)  -- a grace that is over must not be extended
local entry = find_entry(record, session)
if entry and (entry.node ~= node or (entry.conn ~= conn and (grace > 0 or entry.conn > conn))) then entry = nil end
if entry then entry.deadline, entry.heard = v.now + grace, v.now - silent end
settle(v, record, before)
return answer(entry and grace or -1)
