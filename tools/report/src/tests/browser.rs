// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page in a browser, as a reader sees it: on a phone and on a screen, light and dark, nothing is cut
//! off, lies over something else or is too pale, and nothing moves sideways. Skips aloud without Chromium.
//!
//! `LOOK_AT_PAGE=FILE` looks at that page instead.

use super::{full, of};
use crate::{Material, page};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of the browser on Debian, Fedora and others.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Pixels: a phone, and a screen.
const WIDTHS: [u32; 2] = [390, 1280];
/// Pixels of the frame: all of a page is laid out, whatever is seen of it.
const HEIGHT: u32 = 2000;
const LOOK: &str = include_str!("look.js");
/// Around what `look.js` found.
const FOUND: [&str; 2] = ["<pre id=\"found\">", "</pre>"];

fn browser() -> Option<&'static str> {
    BROWSERS.into_iter().find(|name| {
        let mut version = Command::new(name);
        let version = version.arg("--version").stdin(Stdio::null());
        version.output().is_ok_and(|told| told.status.success())
    })
}

/// What is wrong with `page` at `width`.
fn look(browser: &str, room: &Path, page: &Path, width: u32, dark: bool) -> String {
    let around = room.join("around.html");
    let html = format!(
        "<!DOCTYPE html><meta charset=utf-8><iframe id=frame src=\"file://{}\" style=\"border:0;width:{width}px;\
         height:{HEIGHT}px\"></iframe><pre id=found></pre><script>{LOOK}</script>",
        page.display()
    );
    fs::write(&around, html).unwrap();
    let scheme = u8::from(!dark);
    let mut command = Command::new(browser);
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
    ]);
    command.args([
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ]);
    command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
    command.arg(format!(
        "--user-data-dir={}",
        room.join("browser").display()
    ));
    command.arg(format!("--window-size={},{HEIGHT}", width + 100));
    command.arg(format!("file://{}", around.display()));
    let ended = command.stdin(Stdio::null()).output().unwrap();
    let (dom, log) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    let complaints: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert_eq!(complaints, [""; 0], "the browser complains");
    let found = dom
        .split(FOUND[0])
        .nth(1)
        .and_then(|rest| rest.split(FOUND[1]).next());
    let found = found.unwrap_or_else(|| panic!("nothing was looked at: {log}"));
    found
        .replace("&gt;", ">")
        .replace("&lt;", "<")
        .replace("&amp;", "&")
}

/// All that a page may have.
fn written(room: &Path) -> PathBuf {
    let material = Material {
        npbs: vec![crate::npb::tests::measured()],
        profiles: vec![serde_json::from_value(crate::profiles::tests::profile(3, 1000)).unwrap()],
        ..of(vec![serde_json::from_value(full()).unwrap()])
    };
    let file = room.join("page.html");
    fs::write(&file, page(&material)).unwrap();
    file
}

#[test]
fn a_reader_sees_all_of_the_page_on_a_phone_and_on_a_screen_light_and_dark() {
    let Some(browser) = browser() else {
        eprintln!("SKIPPED: no Chromium here (Debian's package chromium)");
        return;
    };
    let room = tempfile::tempdir().unwrap();
    let page = match std::env::var_os("LOOK_AT_PAGE") {
        Some(file) => PathBuf::from(file).canonicalize().unwrap(),
        None => written(room.path()),
    };
    for width in WIDTHS {
        for dark in [false, true] {
            let found = look(browser, room.path(), &page, width, dark);
            assert_eq!(found, "nothing", "{width} px, dark: {dark}");
        }
    }
}
