// SPDX-License-Identifier: Apache-2.0
// The search of the site is a worker, and browsers start no workers in pages that are opened as local files. There, a
// hidden frame runs the script instead, with the messages of a worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve, reject) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.onload = resolve;
          script.onerror = reject;
          script.src = new URL(url, location.href).href;
          inside.document.head.append(script);
        };
      });
      const add = () => document.body.append(this.frame);
      document.body ? add() : addEventListener("DOMContentLoaded", add);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
