-- The users of one partition, in order, each settled. Answers a snapshot each.
-- KEYS: nodes, then for each user: presence bucket, seen bucket
-- ARGV: shift, publish command, bus key, then for each user: field, channel
local now = clock(ARGV[1])
local answers = {}
for index = 1, (#ARGV - 3) / 2 do
  local keys = { nodes = KEYS[1], presence = KEYS[2 * index], seen = KEYS[2 * index + 1], field = ARGV[2 + 2 * index] }
  local record = load_record(keys)
  -- Most records have nothing to settle: they are only read.
  if record then
    local due = record.manual and record.manual.till and record.manual.till <= now
    for _, seat in ipairs(record.seats) do
      due = due or (seat.deadline and seat.deadline <= now) or not life_of(keys.nodes, seat.node).alive
    end
    if due then settle(record, told(record), keys, now, ARGV[3 + 2 * index], ARGV[2], ARGV[3]) end
  end
  answers[index] = snapshot(keys, record)
end
return answers
