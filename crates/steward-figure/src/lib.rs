//! Figures as SVG: what those of `steward report` and those of the lab have in common. Pure.
//!
//! Colours come from CSS classes ([`LIGHT`], [`DARK`]), which the page that shows a figure defines; a figure that
//! stands alone carries the light ones in itself ([`standalone`]). Lengths are in pixels, from the top left.

use std::fmt::{self, Display, Write};

mod panel;

pub use panel::{Panel, Scale};

/// How wide every figure is.
pub const WIDTH: f64 = 760.0;
/// How much of that is left free on the right.
pub const RIGHT: f64 = 16.0;

/// Colours of a light page.
pub const LIGHT: &str = ".ground{fill:#ffffff}.ink{fill:#1f2328}.faint{fill:#656d76}.grid{stroke:#d8dee4;stroke-width:1}\
.load{fill:#f3d9b1;fill-opacity:.45}.line{fill:none;stroke-width:2;stroke-linejoin:round}\
.line0{stroke:#0b66c3}.line1{stroke:#1a7f37;stroke-dasharray:7 5}.line2{stroke:#c0392b}.line3{stroke:#8250df}.bar{fill:#0b66c3}";

/// Colours of a dark page.
pub const DARK: &str = ".ground{fill:#0d1117}.ink{fill:#e6edf3}.faint{fill:#9198a1}.grid{stroke:#30363d;stroke-width:1}\
.load{fill:#7a5418;fill-opacity:.40}.line{fill:none;stroke-width:2;stroke-linejoin:round}\
.line0{stroke:#58a6ff}.line1{stroke:#56d364;stroke-dasharray:7 5}.line2{stroke:#ff7b72}.line3{stroke:#bc8cff}.bar{fill:#58a6ff}";

/// The look of a page with figures, light and dark, but for the figures themselves.
const PAGE: &str = "\
:root{color-scheme:light dark;--ground:#fff;--ink:#1f2328;--faint:#656d76;--rule:#d8dee4;--good:#1a7f37;--bad:#b42318}\
@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--ink:#e6edf3;--faint:#9198a1;--rule:#30363d;--good:#56d364;\
--bad:#ff7b72}}\
body{background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}\
th,td{border-bottom:1px solid var(--rule);padding:.3rem .5rem;text-align:right}th:first-child,td:first-child{text-align:left}\
.scroll{overflow-x:auto}.faint{color:var(--faint)}.met{color:var(--good)}.missed{color:var(--bad);font-weight:600}\
svg{max-width:100%;height:auto}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}pre{white-space:pre-wrap;font-size:12px}";

/// The beginning of a page that shows figures and refers to nothing outside it, up to and with its heading. `title` is
/// escaped already, `style` is what the page adds to the common look.
pub fn page_head(title: &str, style: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\
         <style>{PAGE}{LIGHT}@media(prefers-color-scheme:dark){{{DARK}}}{style}</style></head><body><h1>{title}</h1>"
    )
}

/// The SVG with the light colours inside, as a file of its own.
pub fn standalone(svg: &str) -> String {
    svg.replacen('>', &format!("><style>{LIGHT}</style>"), 1)
}

/// Text inside HTML or SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number of pixels with one digit after the point: as exact as anyone can see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tenths(pub f64);

impl Display for Tenths {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.1}", self.0)
    }
}

/// A figure that is being drawn: what comes later lies above.
#[derive(Clone, Debug)]
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty figure, [`WIDTH`] wide. `title` is what is read out instead of it, `fonts` a list as in CSS.
    pub fn open(title: &str, height: f64, fonts: &str) -> Self {
        Svg {
            text: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
                 height=\"{height:.0}\" font-family=\"{fonts}\" font-size=\"12\" role=\"img\"><title>{}</title>\
                 <rect class=\"ground\" width=\"100%\" height=\"100%\"/>",
                escape(title)
            ),
        }
    }

    /// The whole figure.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>");
        self.text
    }

    /// Words whose base line starts, has its middle or ends (`anchor`: `start`, `middle`, `end`) at that point.
    pub fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, words: &str) {
        let (x, y, words) = (Tenths(x), Tenths(y), escape(words));
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    /// A rectangle from its upper left corner. Numbers stand as they are given: what is computed should be [`Tenths`].
    pub fn rect(
        &mut self,
        class: &str,
        (x, y): (impl Display, impl Display),
        (width, height): (impl Display, impl Display),
    ) {
        self.add(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }

    /// A thin straight line, to read values off.
    pub fn grid_line(
        &mut self,
        (x1, y1): (impl Display, impl Display),
        (x2, y2): (impl Display, impl Display),
    ) {
        self.add(format_args!("<line class=\"grid\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"));
    }

    /// A line through points.
    pub fn line(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let points = points.into_iter().map(|(x, y)| format!("{},{}", Tenths(x), Tenths(y)));
        let points: Vec<String> = points.collect();
        self.add(format_args!("<polyline class=\"line {class}\" points=\"{}\"/>", points.join(" ")));
    }

    fn add(&mut self, element: fmt::Arguments<'_>) {
        self.text.write_fmt(element).expect("a string takes everything");
    }
}

/// The legend of a figure: samples with words, from left to right.
#[derive(Clone, Copy, Debug)]
pub struct Legend {
    /// Where the next sample begins.
    pub x: f64,
    /// The height at which the samples are.
    pub y: f64,
    /// How long a sample is.
    pub sample: f64,
    /// The class of the words.
    pub words: &'static str,
    /// How wide a character is taken to be.
    pub character: f64,
    /// How much is left free after the words.
    pub gap: f64,
}

impl Legend {
    /// Says what lines of this class are.
    pub fn line(&mut self, svg: &mut Svg, class: &str, words: &str) {
        let (x, y, until) = (self.x, self.y, self.x + self.sample);
        svg.add(format_args!("<polyline class=\"line {class}\" points=\"{x},{y} {until},{y}\"/>"));
        self.say(svg, words);
    }

    /// Says what areas of this class are.
    pub fn area(&mut self, svg: &mut Svg, class: &str, words: &str) {
        svg.rect(class, (self.x, self.y - 7.0), (self.sample, 14));
        self.say(svg, words);
    }

    fn say(&mut self, svg: &mut Svg, words: &str) {
        svg.text(self.x + self.sample + 6.0, self.y + 4.0, self.words, "start", words);
        self.x += self.sample + 6.0 + self.character * words.len() as f64 + self.gap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cannot_break_out_of_the_markup() {
        assert_eq!(escape("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
        let mut svg = Svg::open("<b>", 20.0, "sans-serif");
        svg.text(1.0, 2.0, "ink", "start", "</text>");
        let svg = svg.finish();
        assert!(!svg.contains("<b>") && svg.matches("</text>").count() == 1, "{svg}");
    }

    #[test]
    fn a_figure_that_stands_alone_has_its_colours_once() {
        let svg = standalone(&Svg::open("empty", 20.0, "sans-serif").finish());
        assert_eq!(svg.matches(LIGHT).count(), 1);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    }

    #[test]
    fn an_entry_of_a_legend_begins_where_the_one_before_has_ended() {
        let mut svg = Svg::open("two", 20.0, "sans-serif");
        let mut legend = Legend { x: 10.0, y: 16.0, sample: 20.0, words: "ink", character: 7.0, gap: 4.0 };
        legend.line(&mut svg, "line0", "four");
        assert_eq!(legend.x, 10.0 + 20.0 + 6.0 + 4.0 * 7.0 + 4.0);
        legend.area(&mut svg, "load", "load");
        let svg = svg.finish();
        assert!(
            svg.contains("points=\"10,16 30,16\"") && svg.contains("x=\"68\" y=\"9\" width=\"20\""),
            "{svg}"
        );
    }
}
