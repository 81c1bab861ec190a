// SPDX-License-Identifier: MIT OR Apache-2.0
// Finds layout problems of a page in a frame: text that is cut off, overlaps or has too little contrast.
// Writes the problems to the element #found, or "nothing" if there are none.

// Minimum contrast (WCAG 2.1, level AA) of text, and of names drawn in the colour of their lines.
const CONTRAST_MIN = 4.5;
const CONTRAST_MIN_DRAWN = 3;
const SLACK = 1.5; // tolerated overlap of text boxes in pixels, because they are taller than the letters

function luminance(colour) {
    const part = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const [red, green, blue] = colour.match(/[\d.]+/g).map((value) => part(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
}

function problems_of(frame, width) {
    const found = [];
    const view = frame.contentWindow;
    const page = frame.contentDocument;
    const report = (what) => found.push(`${width} px: ${what}`);
    const ground = view.getComputedStyle(page.body).backgroundColor;
    if (page.scripts.length > 0) report("the page has a script");
    if (page.documentElement.scrollWidth > width) {
        report(`the page is ${page.documentElement.scrollWidth} px wide`);
    }
    for (const element of page.body.querySelectorAll("*")) {
        const box = element.getBoundingClientRect();
        const words = element.textContent.trim().slice(0, 40);
        if (box.width === 0 || element.closest(".scroll table")) continue;
        if (box.right > width + SLACK || box.left < -SLACK) report(`cut off: ${element.tagName} "${words}"`);
    }
    for (const element of page.body.querySelectorAll("p, li, td, th, figcaption, h1, h2, h3, dt, dd, text")) {
        if (element.getBoundingClientRect().width === 0) continue;
        const style = view.getComputedStyle(element);
        const ink = element.tagName === "text" ? style.fill : style.color;
        const behind = element.closest("tbody.now") ? view.getComputedStyle(element).backgroundColor : ground;
        const clear = /, 0\)$/.test(behind) ? ground : behind;
        const is_drawn = /system/.test(element.getAttribute("fill") ?? "");
        const least = is_drawn ? CONTRAST_MIN_DRAWN : CONTRAST_MIN;
        if (contrast(ink, clear) < least) report(`low contrast: "${element.textContent.trim()}"`);
    }
    for (const chart of page.querySelectorAll("svg")) {
        const sheet = chart.getBoundingClientRect();
        if (sheet.width === 0) continue;
        const name = chart.getAttribute("aria-label");
        const texts = [...chart.querySelectorAll("text")].map((text) => [
            text.textContent.trim(),
            text.getBoundingClientRect(),
        ]);
        texts.forEach(([words, box], at) => {
            if (box.right > sheet.right + SLACK || box.left < sheet.left - SLACK) {
                report(`${name}: "${words}" is cut off`);
            }
            for (const [others, other] of texts.slice(at + 1)) {
                const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
                const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
                // Adjacent lines may touch; an overlap of a third of a line is a problem.
                if (across > SLACK && down > box.height / 3) report(`${name}: "${words}" overlaps "${others}"`);
            }
        });
    }
    return found;
}

// The frame has the page and the width that media queries use.
addEventListener("load", () => {
    const frame = document.getElementById("frame");
    const found = problems_of(frame, frame.clientWidth);
    document.getElementById("found").textContent = found.length > 0 ? found.join("\n") : "nothing";
});
