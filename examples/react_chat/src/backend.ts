/** The user: the backend writes the name into the token, and the rest as info for other users. */
export interface Me {
  name: string;
  avatar: string;
  colour: string;
}

/** Fetch a token. In your app, the backend signs it for the signed-in user. */
export const tokenFor = async (me: Me) => (await post("/token", { ...me })).text();

/** Notify another user. The backend calls `server.notify`. */
export const nudge = ({ name }: Me, to: string) => post("/nudge", { name, to });

async function post(path: string, fields: Record<string, string>): Promise<Response> {
  const answer = await fetch(`${path}?${new URLSearchParams(fields)}`, { method: "POST" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer;
}
