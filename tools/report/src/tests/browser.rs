// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layout test of the page in a browser, on a phone and on a screen, light and dark. Nothing may be
//! cut off, overlap, have too little contrast or scroll sideways. Without Chromium the test prints
//! a message and is skipped.
//!
//! `LOOK_AT_PAGE=FILE` tests that page instead.

use super::{full, of};
use crate::{Material, page};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of the browser on Debian, Fedora and other distributions.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Widths in pixels of a phone and a screen.
const WIDTHS: [u32; 2] = [390, 1280];
/// Height of the frame in pixels. The layout covers the whole page regardless of the visible part.
const HEIGHT: u32 = 2000;
const SCRIPT: &str = include_str!("layout.js");
/// Markers around the results of `layout.js`.
const FOUND: [&str; 2] = ["<pre id=\"found\">", "</pre>"];

fn browser() -> Option<&'static str> {
    BROWSERS.into_iter().find(|name| {
        let mut version = Command::new(name);
        let version = version.arg("--version").stdin(Stdio::null());
        version.output().is_ok_and(|output| output.status.success())
    })
}

/// Returns the problems of `page` at `width`.
fn layout_problems(browser: &str, directory: &Path, page: &Path, width: u32, dark: bool) -> String {
    let around = directory.join("around.html");
    let html = format!(
        "<!DOCTYPE html><meta charset=utf-8><iframe id=frame src=\"file://{}\" style=\"border:0;width:{width}px;\
         height:{HEIGHT}px\"></iframe><pre id=found></pre><script>{SCRIPT}</script>",
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
        directory.join("browser").display()
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
    assert_eq!(complaints, [""; 0], "errors in the browser console");
    let found = dom
        .split(FOUND[0])
        .nth(1)
        .and_then(|rest| rest.split(FOUND[1]).next());
    let found = found.unwrap_or_else(|| panic!("the page was not examined: {log}"));
    found
        .replace("&gt;", ">")
        .replace("&lt;", "<")
        .replace("&amp;", "&")
}

/// Writes a page with all sections.
fn written(directory: &Path) -> PathBuf {
    let material = Material {
        npbs: vec![crate::npb::tests::measured()],
        profiles: vec![serde_json::from_value(crate::profiles::tests::profile(3, 1000)).unwrap()],
        ..of(vec![serde_json::from_value(full()).unwrap()])
    };
    let file = directory.join("page.html");
    fs::write(&file, page(&material)).unwrap();
    file
}

#[test]
fn page_fits_phone_and_desktop_in_light_and_dark_mode() {
    let Some(browser) = browser() else {
        eprintln!("SKIPPED: no Chromium here (Debian's package chromium)");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let page = match std::env::var_os("LOOK_AT_PAGE") {
        Some(file) => PathBuf::from(file).canonicalize().unwrap(),
        None => written(directory.path()),
    };
    for width in WIDTHS {
        for dark in [false, true] {
            let found = layout_problems(browser, directory.path(), &page, width, dark);
            assert_eq!(found, "nothing", "{width} px, dark: {dark}");
        }
    }
}
