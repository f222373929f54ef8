-- End the expired sessions and the expired status of one user. Returns a snapshot.
local v, refused = verb()
if refused then return refused end
local record = load_record(v)
if record then settle(v, record, told(record)) end
return answer(snapshot(v))
