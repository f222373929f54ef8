-- End a session whose grace is over. Returns the remaining milliseconds if the call is early, else -1.
-- ARGV from 6: session, incarnation, connection
local v = verb()
if not v.now then return other_time() end
local record = load_record(v)
if not record then return -1 end
local remaining = -1
local entry = find_entry(record, ARGV[6], ARGV[7], tonumber(ARGV[8]))
if entry and entry.deadline and entry.deadline > v.now then remaining = entry.deadline - v.now end
settle(v, record, told(record))
return answer(remaining)
