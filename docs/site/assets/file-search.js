// Search of a site that is opened as files (file://). Browsers start no worker from a file, so the script of the
// worker runs in a hidden frame instead. The index is a script, too: search/search_index.js.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #waiting = []; // messages until the script runs

    constructor(address) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const inside = this.#frame.contentWindow;
      // The script answers with the function of a worker, which has no target.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(address, document.baseURI);
      script.onload = () => {
        const messages = this.#waiting;
        this.#waiting = null;
        for (const data of messages) this.postMessage(data);
      };
      script.onerror = () => this.dispatchEvent(new Event("error"));
      inside.document.body.append(script);
    }

    postMessage(data) {
      const inside = this.#frame.contentWindow;
      if (this.#waiting) this.#waiting.push(data);
      else inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
