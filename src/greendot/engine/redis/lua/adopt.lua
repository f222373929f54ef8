-- Continue a session under another id and connection. Other lingering sessions of its device end, as in touch.lua. Returns {previous incarnation, i if idle}, or an empty table if the
-- user has no such session.
-- ARGV from 7: new session id, incarnation, connection, previous session id
local session, node, conn = ARGV[7], ARGV[8], tonumber(ARGV[9])
local refused = fenced(KEYS[2], node)
if refused then return refused end
local v
v, refused = verb()
if refused then return refused end
local record = load_record(v)
if not record then return {} end
local before = told(record)
prune(record, v.nodes, v.now)
local entry = find_entry(record, ARGV[10])
local found = {}
if entry then
  found = { entry.node, entry.idle and 'i' or '' }
  local kept = {}
  for _, other in ipairs(record.entries) do
    local left = other.session == session or (other.device == entry.device and other.deadline)
    if other == entry or not left then kept[#kept + 1] = other end
  end
  record.entries = kept
  entry.session = session
  entry.node, entry.conn, entry.deadline, entry.heard = node, conn, nil, nil
end
settle(v, record, before)
return answer(found)
