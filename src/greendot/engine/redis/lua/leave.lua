-- End a session whose grace is over. Returns the remaining milliseconds if the call is early, else -1.
-- ARGV from 7: session, incarnation, connection
local v, refused = verb()
if refused then return refused end
local record = load_record(v)
if not record then return -1 end
local remaining = -1
local entry = find_entry(record, ARGV[7], ARGV[8], tonumber(ARGV[9]))
if entry and entry.deadline and entry.deadline > v.now then remaining = entry.deadline - v.now end
settle(v, record, told(record))
return answer(remaining)
