-- End the expired sessions and the expired status of one user. Returns a snapshot.
local v = verb()
if not v.now then return other_time() end
local record = load_record(v)
if record then settle(v, record, told(record)) end
return answer(snapshot(v))
