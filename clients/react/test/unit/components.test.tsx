import { cleanup, fireEvent, waitFor } from "@testing-library/react";
import axe from "axe-core";
import type { ReactElement } from "react";
import { afterEach, describe, expect, test, vi } from "vitest";
import { Avatar, Face, Facepile, InboxBell, type InboxBellProps, TypingLine } from "../../src/components/index.js";
import { entry, FakeClient, person } from "../../../js/test/unit/fake.js";
import { act, settle, show } from "./show.js";

afterEach(cleanup);

/** Show an element. Roles, names and structure must have no fault; colours are checked in a browser. */
async function checked(client: FakeClient, element: ReactElement) {
  const shown = show(client, <main>{element}</main>);
  return Object.assign(shown, {
    async faults() {
      const { violations } = await axe.run(shown.container, { rules: { "color-contrast": { enabled: false }, region: { enabled: false }, "page-has-heading-one": { enabled: false } } });
      return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
    },
  });
}

describe("Avatar", () => {
  test("has name and state as one image, and the state as an attribute", async () => {
    const client = new FakeClient();
    const { getByRole, container, faults } = await checked(client, <Avatar user="alice" className="big" />);
    const image = getByRole("img", { name: "alice" });
    expect([image.className, image.dataset.state, image.textContent]).toEqual(["gd-avatar big", "unknown", "A"]);
    act(() => client.presence.tell(person("alice", "busy", 1, { name: "Alice Liddell" })));
    expect(getByRole("img", { name: "Alice Liddell, busy" }).textContent).toBe("AL");
    expect(container.querySelector(".gd-dot")!.getAttribute("data-state")).toBe("busy");
    expect(await faults()).toEqual([]);
  });

  test("has words of the app, and a profile until the presence is known", async () => {
    const label = (name: string, state: string) => `${name} (${state === "online" ? "da" : "weg"})`;
    const { getByRole } = await checked(new FakeClient(), <Avatar user="alice" label={label} profile={{ name: "Alice" }} />);
    expect(getByRole("img", { name: "Alice (weg)" })).toBeTruthy();
  });
});

test.each([
  ["🦊", null],
  ["https://example.com/alice.png", "https://example.com/alice.png"],
  ["/alice.png", "/alice.png"],
  ["javascript:alert(1)", null],
])("Face shows the avatar %s", async (avatar, image) => {
  const profile = { name: "Alice", info: { avatar, colour: "rgb(1, 2, 3)" } };
  const { container } = await checked(new FakeClient(), <Face user="alice" profile={profile} />);
  expect(container.querySelector("img")?.getAttribute("src") ?? null).toBe(image);
  const face = container.querySelector<HTMLElement>(".gd-face")!;
  expect([face.style.background, face.textContent]).toEqual(["rgb(1, 2, 3)", image ? "" : avatar]);
});

describe("Facepile", () => {
  test("shows the users in a room, and the number of the others", async () => {
    const client = new FakeClient();
    const { getByRole, getAllByRole, queryByRole, faults } = await checked(client, <Facepile room="lobby" max={2} />);
    expect(queryByRole("list")).toBeNull();
    client.room("lobby").profiles = { alice: { name: "Alice" } };
    await settle(() => client.room("lobby").enter(["alice", "bob", "carol", "dave"]));
    expect(getByRole("list", { name: "4 people" })).toBeTruthy();
    expect(getAllByRole("img").map((one) => one.getAttribute("aria-label"))).toEqual(["Alice", "bob", "2 more"]);
    expect(await faults()).toEqual([]);
  });

  test("of a large room is a number, of given users has their pictures", async () => {
    const client = new FakeClient();
    const { getAllByRole } = await checked(client, <><Facepile room="lobby" /><Facepile users={["erin"]} /></>);
    await settle(() => {
      client.room("lobby").enter();
      client.room("lobby").counts(250);
    });
    expect(getAllByRole("img").map((one) => one.getAttribute("aria-label"))).toEqual(["250 more", "erin"]);
    expect(getAllByRole("list").map((one) => one.getAttribute("aria-label"))).toEqual(["250 people", "1 person"]);
  });
});

test("TypingLine is a live region that stays, with words of the app", async () => {
  const client = new FakeClient();
  const words = { one: "{0} schreibt …", two: "", several: "", some: "" };
  const { getByRole, faults } = await checked(client, <TypingLine room="lobby" words={words} />);
  const line = getByRole("status");
  expect(line.textContent).toBe("");
  act(() => client.room("lobby").types("Bob"));
  expect(line.textContent).toBe("Bob schreibt …");
  expect(line.dataset.count).toBe("1");
  act(() => client.room("lobby").types());
  expect(line.textContent).toBe("");
  expect(await faults()).toEqual([]);
});

describe("InboxBell", () => {
  async function bell(props: InboxBellProps = {}, entries = [entry(1, { body: { title: "first" } }), entry(2, { body: { text: "second" } }), entry(3)]) {
    const client = new FakeClient();
    client.inbox.entries = entries;
    client.inbox.unread = entries.length;
    client.welcomed("alice");
    const shown = await checked(client, <><InboxBell {...props} /><a href="#elsewhere">elsewhere</a></>);
    const button = shown.getByRole("button", { name: /^Notifications/ });
    return { ...shown, client, button, open: () => settle(() => fireEvent.click(button)) };
  }

  test("shows the unread ones, newest first; one that is chosen is read", async () => {
    const { client, button, open, getByRole, getAllByRole, faults } = await bell();
    expect([getByRole("button", { name: "Notifications, 3 unread" }), button.querySelector(".gd-badge")!.textContent, button.getAttribute("aria-expanded")]).toEqual([button, "3", "false"]);
    expect(client.inbox.asked).toEqual([]); // before the panel is open
    await open();
    const panel = getByRole("dialog", { name: "Notifications" });
    expect([button.getAttribute("aria-expanded"), button.getAttribute("aria-controls")]).toEqual(["true", panel.id]);
    expect(document.activeElement).toBe(panel);
    expect(getAllByRole("listitem").map((one) => one.textContent)).toEqual(["Unread: news", "Unread: second", "Unread: first"]);
    expect(client.inbox.marks).toEqual([["seen", { through: 3 }]]);
    expect(await faults()).toEqual([]);
    await settle(() => fireEvent.click(getByRole("button", { name: "Unread: second" })));
    expect(client.inbox.marks.at(-1)).toEqual(["read", "n2"]);
    expect(getAllByRole("listitem").map((one) => one.dataset.unread)).toEqual(["true", "false", "true"]);
    await settle(() => fireEvent.click(getByRole("button", { name: "Mark all as read" })));
    expect(client.inbox.marks.at(-1)).toEqual(["read", { through: 3 }]);
  });

  test("keys open it, move between notifications, and close it", async () => {
    const { button, getByRole, getAllByRole, queryByRole } = await bell();
    const press = (key: string) => settle(() => fireEvent.keyDown(document.activeElement!, { key }));
    const at = () => getAllByRole("listitem").findIndex((one) => one.contains(document.activeElement));
    button.focus();
    await press("ArrowDown");
    expect(document.activeElement).toBe(getByRole("dialog"));
    const places: number[] = [];
    for (const key of ["ArrowDown", "ArrowDown", "ArrowUp", "End", "ArrowDown", "Home", "ArrowUp"]) {
      await press(key);
      places.push(at());
    }
    expect(places).toEqual([0, 1, 0, 2, 2, 0, 0]);
    await press("Escape");
    expect(queryByRole("dialog")).toBeNull();
    expect(document.activeElement).toBe(button);
  });

  test("focus or a click elsewhere closes it", async () => {
    const { open, getByRole, getByText, queryByRole } = await bell();
    await open();
    await settle(() => getByText("elsewhere").focus());
    expect(queryByRole("dialog")).toBeNull();
    await open();
    await settle(() => fireEvent.pointerDown(getByRole("dialog")));
    expect(queryByRole("dialog")).not.toBeNull();
    await settle(() => fireEvent.pointerDown(document.body));
    expect(queryByRole("dialog")).toBeNull();
  });

  test("onSelect gets the notification and closes the panel; content, footer and words are those of the app", async () => {
    const onSelect = vi.fn();
    const props = { onSelect, children: ({ seq }: { seq: number }) => <b>{`no. ${seq}`}</b>, footer: <p>the end</p>, words: { title: "Inbox" } };
    const { open, button, getByRole, getByText, queryByRole } = await bell(props);
    await open();
    expect([getByRole("dialog", { name: "Inbox" }).lastChild!.textContent, getByText("no. 3").tagName]).toEqual(["the end", "B"]);
    await settle(() => fireEvent.click(getByText("no. 1")));
    expect(onSelect.mock.calls.map(([one]) => one.seq)).toEqual([1]);
    expect(queryByRole("dialog")).toBeNull();
    expect(document.activeElement).toBe(button);
  });

  test("readOnOpen reads all, and later ones too; a higher number is announced, a lower one is not", async () => {
    const { client, open, getByRole, container } = await bell({ readOnOpen: true });
    const news = () => container.querySelector('.gd-bell > [role="status"]')!.textContent;
    expect(news()).toBe("");
    await open();
    expect(client.inbox.marks).toEqual([["read", { through: 3 }]]);
    const badge = (unread: number) => settle(() => client.inbox.emit("badge", { unread, unseen: 0 }));
    await badge(0);
    expect([news(), getByRole("button", { name: "Notifications, 0 unread" }).querySelector(".gd-badge")]).toEqual(["", null]);
    await badge(120);
    expect([news(), container.querySelector(".gd-badge")!.textContent]).toEqual(["Notifications, 120 unread", "99+"]);
    await settle(() => client.inbox.emit("created", entry(4)));
    await waitFor(() => expect(client.inbox.marks.at(-1)).toEqual(["read", { through: 4 }]));
  });

  test("an empty inbox and a failed fetch have a text", async () => {
    const { client, open, getByRole, findByText, faults } = await bell({}, []);
    await open();
    await findByText("No notifications yet.");
    client.inbox.list = () => Promise.reject(Object.assign(new Error("the server is busy"), { code: "overloaded" }));
    await settle(() => client.inbox.emit("resync", {}));
    expect(getByRole("alert").textContent).toBe("The notifications cannot be shown: the server is busy");
    expect(await faults()).toEqual([]);
  });
});
