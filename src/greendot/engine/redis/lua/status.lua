-- Copy the durable manual status. A revision lower than the known one is ignored. Returns a snapshot.
-- ARGV from 7: status letter (empty: auto), revision, until (empty), text
local v, refused = verb()
if refused then return refused end
local status, rev, till, text = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local record = load_record(v)
if record then
  if not record.manual or rev >= record.manual.rev then
    record.manual = { status = status, rev = rev, till = till, text = text }
  end
  settle(v, record, told(record))
end
return answer(snapshot(v))
