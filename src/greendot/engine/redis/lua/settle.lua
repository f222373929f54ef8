-- End what has run out for one user. Answers a snapshot.
local v = verb()
if not v.now then return other_time() end
local record = load_record(v)
if record then settle(v, record, told(record)) end
return answer(snapshot(v))
