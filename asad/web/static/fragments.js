// Tables that the server has rendered, put where their places are. It escapes all that comes from users, and the
// page's policy lets nothing run that it did not load itself.

export const parts = ["fragments"];

export function draw({ fragments }, change) {
  for (const name of Object.keys(change.fragments.set)) {
    const place = document.querySelector(`[data-fragment="${name}"]`);
    if (!place) continue;
    const parsed = new DOMParser().parseFromString(fragments.get(name), "text/html");
    place.replaceChildren(...parsed.body.childNodes);
  }
}
