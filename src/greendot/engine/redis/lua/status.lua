-- Copy the durable manual status. A revision lower than the known one is ignored. Returns a snapshot.
-- ARGV from 6: status letter (empty: auto), revision, until (empty), text
local v = verb()
local status, rev, till, text = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
if not v.now then return other_time() end
local record = load_record(v)
if record then
  if not record.manual or rev >= record.manual.rev then
    record.manual = { status = status, rev = rev, till = till, text = text }
  end
  settle(v, record, told(record))
end
return answer(snapshot(v))
