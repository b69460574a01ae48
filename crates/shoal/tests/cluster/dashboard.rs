//! The page of a node in a browser, where there is one: headless Chromium, Debian's package `chromium`.

use crate::local::Local;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

/// A page with the page of the node in it, as wide as a telephone or a screen, which notes what a reader would see.
const FRAME: &str = r#"<!doctype html><title>waits</title><iframe id="page" src="/" width="WIDTH" height="1400"></iframe>
<script>
setInterval(() => {
    const seen = document.getElementById("page").contentDocument;
    if (seen.querySelectorAll("figure").length === 0) return;
    document.title = JSON.stringify({
        title: seen.title,
        fits: seen.documentElement.scrollWidth <= seen.documentElement.clientWidth,
        figures: seen.querySelectorAll("figure").length,
        lines: [...seen.querySelectorAll("path.plot")].filter((path) => path.getAttribute("d").startsWith("M")).length,
        shards: seen.getElementById("shards").innerText,
        nodes: seen.getElementById("nodes").innerText,
        epochs: seen.getElementById("epochs").innerText,
        summary: seen.getElementById("summary").innerText,
    });
}, 200);
</script>"#;

/// Serves the frames, and the rest from the node: only pages of one origin can look into each other.
fn serve_frames(node: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let answer = move |mut asker: TcpStream| -> io::Result<()> {
        let mut request = [0; 4096];
        let length = asker.read(&mut request)?;
        let request = &request[..length];
        let frame = request.strip_prefix(b"GET /frame-").map(|rest| {
            let width =
                rest.iter().map_while(|byte| byte.is_ascii_digit().then_some(*byte as char));
            FRAME.replace("WIDTH", &width.collect::<String>())
        });
        if let Some(frame) = frame {
            return write!(asker, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{frame}");
        }
        let mut node = TcpStream::connect(&node)?;
        node.write_all(request)?;
        io::copy(&mut node, &mut asker)?;
        Ok(())
    };
    // It ends with the tests. A browser that hangs up is no failure.
    thread::spawn(move || listener.incoming().flatten().for_each(|asker| drop(answer(asker))));
    address
}

/// What the page shows in a window of this width, and what the browser complained of.
fn seen(folder: &Path, frames: SocketAddr, width: u32) -> (serde_json::Value, String) {
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .args(["--virtual-time-budget=3000", "--dump-dom", "--window-size=1400,1500"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("http://{frames}/frame-{width}"))
        .output()
        .expect("started");
    let dom = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    let seen = serde_json::from_str(title.unwrap_or_default());
    (seen.unwrap_or_else(|_| panic!("nothing is drawn: {dom}\n{complaints}")), complaints)
}

#[test]
fn the_page_of_a_node_is_drawn_on_a_screen_and_on_a_telephone() {
    if Command::new("chromium").arg("--version").output().is_err() {
        eprintln!("the page is not looked at: there is no chromium here");
        return;
    }
    let mut local = Local::start(&["--shards", "2", "--http"]);
    let frames = serve_frames(local.http());
    local.run_well(&["chaos", "kill-leader", "1"]);
    let folder = tempfile::tempdir().expect("a folder");
    for width in [1280, 400] {
        let (seen, complaints) = seen(folder.path(), frames, width);
        assert_eq!(seen["title"], "s0v0 · Shoal", "{seen}");
        assert_eq!(seen["fits"], true, "{width}: {seen}");
        assert_eq!(seen["figures"], 6, "{seen}");
        // Each of the six has a line at least, and its key.
        assert!(seen["lines"].as_u64().expect("a number") >= 12, "{seen}");
        let has = |part: &str, words: &str| {
            assert!(seen[part].as_str().expect("text").contains(words), "{words}: {seen}");
        };
        has("shards", "S1");
        has("shards", "s0v0, s0v1, s0v2");
        has("nodes", "s1v2");
        has("epochs", "S1: s1v0 → s1v");
        has("summary", "1 of 1 workers answer");
        assert!(!complaints.contains("Content Security Policy"), "{complaints}");
        assert!(!complaints.contains("Uncaught"), "{complaints}");
    }
    local.end();
}
