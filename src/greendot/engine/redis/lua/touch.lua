-- Record that a session is on this connection. Returns {resumed, status known}. Refuses a node that is not live (FENCED)
-- or not known (UNKNOWN).
-- ARGV from 7: session, incarnation, connection, device, idle (i, a or empty to keep), name (empty to keep);
--   to restore lost data also: age of the state (ms), status letter, revision, until, text, time since the loss was found
--   (ms; empty or missing: nothing was lost)
local session, node, conn, device, idle, name = ARGV[7], ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11], ARGV[12]
local refused = fenced(KEYS[2], node)
if refused then return refused end
local v
v, refused = verb()
if refused then return refused end
local record = load_record(v) or fresh_record(v)
local before = told(record)
if name ~= '' then record.name = name end
if ARGV[13] then
  v.restoring = true
  v.since = v.now - tonumber(ARGV[13])
  local lost = tonumber(ARGV[18] or '')
  if lost then v.lost_at = v.now - lost end
  local rev = tonumber(ARGV[15])
  if not record.manual or rev >= record.manual.rev then
    record.manual = { status = ARGV[14], rev = rev, till = tonumber(ARGV[16]), text = ARGV[17] }
  end
end
prune(record, v.nodes, v.now)
local found = find_entry(record, session)
-- A new connection ends the lingering sessions of its device. A restore does not: they may be newer.
local came = not found or found.node ~= node or found.conn ~= conn
if not found then
  record.entries[#record.entries + 1] = { session = session, device = device, conn = conn, idle = idle == 'i', node = node }
elseif found.node ~= node or conn > found.conn or (conn == found.conn and not found.deadline) then
  found.node, found.conn, found.deadline, found.heard = node, conn, nil, nil
  if idle ~= '' then found.idle = idle == 'i' end
else  -- an older or closed connection: its late commands are ignored
  came = false
end
if came and not v.restoring then
  local kept = {}
  for _, entry in ipairs(record.entries) do
    if entry.session == session or entry.device ~= device or not entry.deadline then kept[#kept + 1] = entry end
  end
  record.entries = kept
end
settle(v, record, before)
return answer({ found and 1 or 0, record.manual and 1 or 0 })
