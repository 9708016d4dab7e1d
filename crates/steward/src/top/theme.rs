//! How the screen looks, with colours or without.

use ratatui::style::{Color, Modifier, Style};

use super::cpu::promise::Keeping;
use super::text::Mark;

/// The styles of what is shown.
#[derive(Clone, Copy)]
pub struct Theme {
    /// With colours.
    pub colour: bool,
}

impl Theme {
    fn coloured(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// A part of a bar.
    pub fn mark(self, mark: Mark) -> Style {
        match mark {
            Mark::Empty => Style::new(),
            Mark::Got => self.coloured(Color::Green),
            Mark::Missed => self.coloured(Color::Yellow),
            Mark::Predicted => self.coloured(Color::Cyan).add_modifier(Modifier::BOLD),
            Mark::Potential => self.coloured(Color::Magenta).add_modifier(Modifier::BOLD),
        }
    }

    /// What must be seen.
    pub fn alarm(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// How a promise stands.
    pub fn keeping(self, state: Keeping) -> Style {
        match state {
            Keeping::Broken => self.alarm(),
            Keeping::Kept => self.coloured(Color::Green),
            Keeping::Idle => Style::new(),
        }
    }

    /// Titles, and what is selected.
    pub fn title() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
