-- End a linger that is over. Answers the milliseconds that remain when early, else -1.
-- ARGV from 6: session, incarnation, connection
local v = verb()
if not v.now then return other_time() end
local record = load_record(v)
if not record then return -1 end
local remaining = -1
local seat = find_seat(record, ARGV[6], ARGV[7], tonumber(ARGV[8]))
if seat and seat.deadline and seat.deadline > v.now then remaining = seat.deadline - v.now end
settle(v, record, told(record))
return answer(remaining)
