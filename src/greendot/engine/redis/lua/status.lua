-- Copy the durable manual status; a lower revision than the known one is ignored. Answers a snapshot.
-- KEYS: presence bucket, nodes, seen bucket
-- ARGV: shift, field, channel, publish command, bus key,  status letter (empty: auto), revision, until (empty), text
local keys = { presence = KEYS[1], nodes = KEYS[2], seen = KEYS[3], field = ARGV[2] }
local status, rev, till, text = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local record = load_record(keys)
if record then
  if not record.manual or rev >= record.manual.rev then
    record.manual = { status = status, rev = rev, till = till, text = text }
  end
  settle(record, told(record), keys, clock(ARGV[1]), ARGV[3], ARGV[4], ARGV[5])
end
return snapshot(keys, record)
