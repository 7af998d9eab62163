// Browsers start no worker from a page that was opened from a disk, and the search runs in one:
// there a hidden frame does a worker's work. As between workers, a message is a copy and comes later.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      const waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.title = "Search"
      this.postMessage = message => waiting.push(message)
      this.terminate = () => frame.remove()
      frame.onload = () => {
        const inside = frame.contentWindow
        const send = (to, realm, message) => {
          const data = realm.structuredClone(message)
          setTimeout(() => to.onmessage?.({ data }))
        }
        inside.postMessage = answer => send(this, window, answer)
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = () => {
          this.postMessage = message => send(inside, inside, message)
          waiting.forEach(this.postMessage)
        }
        inside.document.head.append(script)
      }
      document.body.append(frame)
    }
  }
}
