//! A panel: a part of a figure in which values are drawn over time.

use crate::{RIGHT, Svg, Tenths, WIDTH};

/// How values become heights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From 0 to this.
    Linear(f64),
    /// From 1 to this, which is above 1: each factor of ten is as high as the next.
    Logarithmic(f64),
}

/// A panel, which reaches to the right end of the figure.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// Where it begins on the left; values are named before that.
    pub left: f64,
    /// Where it begins at the top.
    pub top: f64,
    /// How high it is.
    pub height: f64,
    /// How many seconds it shows.
    pub length_s: f64,
    /// Which values it shows. What is beyond is drawn at the edge.
    pub scale: Scale,
}

impl Panel {
    /// Where this moment is, in seconds since the beginning.
    pub fn x(&self, at_s: f64) -> f64 {
        self.left + (at_s / self.length_s).clamp(0.0, 1.0) * (WIDTH - self.left - RIGHT)
    }

    /// Where this value is.
    pub fn y(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear(most) => value / most,
            Scale::Logarithmic(most) => value.max(1.0).ln() / most.ln(),
        };
        self.top + self.height * (1.0 - part.clamp(0.0, 1.0))
    }

    /// Lines across at these values, named on the left.
    pub fn grid(&self, svg: &mut Svg, values: &[f64]) {
        for value in values {
            let y = self.y(*value);
            svg.grid_line((self.left, Tenths(y)), (Tenths(WIDTH - RIGHT), Tenths(y)));
            svg.text(self.left - 6.0, y + 4.0, "faint", "end", &format!("{value:.0}"));
        }
    }

    /// Names this moment below.
    pub fn moment(&self, svg: &mut Svg, at_s: f64, words: &str) {
        svg.text(self.x(at_s), self.top + self.height + 15.0, "faint", "middle", words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANEL: Panel =
        Panel { left: 50.0, top: 10.0, height: 100.0, length_s: 20.0, scale: Scale::Linear(40.0) };

    #[test]
    fn values_and_moments_beyond_are_at_the_edge() {
        assert_eq!(
            [-1.0, 0.0, 10.0, 40.0, f64::INFINITY].map(|value| PANEL.y(value)),
            [110.0, 110.0, 85.0, 10.0, 10.0]
        );
        assert_eq!([-1.0, 0.0, 20.0, 99.0].map(|at_s| PANEL.x(at_s)), [50.0, 50.0, 744.0, 744.0]);
    }

    #[test]
    fn factors_of_ten_are_equally_high_on_a_logarithmic_scale() {
        let panel = Panel { scale: Scale::Logarithmic(100.0), ..PANEL };
        assert_eq!([0.1, 1.0, 10.0, 100.0].map(|value| panel.y(value).round()), [110.0, 110.0, 60.0, 10.0]);
    }
}
