//! What the screen is in the middle of, and what a key does. Pure: what must be done outside comes back as an
//! [`Action`].

use std::collections::HashSet;

use libsteward::api;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use rustix::process::Signal;

use super::model::{Model, Reading};
use super::row::Key;
use super::view::{Column, Row, View};
use crate::arguments::{Promise, parse_promise};
use crate::cpu::api::to_api;
use crate::users::Users;

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Colours; NO_COLOR asks for none.
    pub colour: bool,
    /// Characters beyond ASCII.
    pub unicode: bool,
}

/// How it is with the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Nothing was read yet.
    Waiting,
    /// It answers.
    Up,
    /// It does not, or refuses: the reason in a sentence.
    Down(String),
    /// It has not answered for that many seconds.
    Silent(u64),
}

/// Whose reservation is being changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, with its name.
    Process(i32, String),
    /// One of the further threads of a process, with its name.
    Thread(i32, String),
    /// A domain.
    Domain(String),
}

/// A process that is to be ended, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The thread whose row it was.
    pub tid: i32,
    /// Its process.
    pub pid: i32,
    /// The thread's name: another one is another program.
    pub name: String,
}

/// A change that the daemon is to be asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Gives a process a reservation.
    Set(api::Set),
    /// Takes it away.
    Release(i32),
    /// Changes what a domain has reserved.
    Domain(Box<api::SetDomain>),
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// End.
    Quit,
    /// Stop until the shell continues it, as Ctrl-Z does.
    Suspend,
    /// Ask the daemon.
    Change(Change),
    /// Send a process this signal.
    Kill(Victim, Signal),
}

/// What a line is typed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To go to the row with this name.
    Search,
    /// To show such rows only.
    Filter,
    /// To reserve.
    Reserve(Target),
}

/// What the keys are for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The table.
    Table,
    /// The help page.
    Help,
    /// The choice of a column; the place in [`Column::ALL`].
    Sort(usize),
    /// A line that is being typed.
    Prompt(Purpose, String),
    /// The question whether and how to end a process.
    Kill(Victim),
}

/// The screen's state.
#[derive(Debug)]
pub struct App {
    /// What is known.
    pub model: Model,
    /// What is shown of it.
    pub view: View,
    /// What the keys are for.
    pub mode: Mode,
    /// What the terminal can show.
    pub looks: Looks,
    /// What users are called.
    pub users: Users,
    /// How it is with the daemon.
    pub connection: Connection,
    /// The last answer to a change, or what was wrong with what was typed.
    pub message: Option<String>,
    /// The selected row's place among those shown.
    pub cursor: usize,
    /// The first row on the screen.
    pub offset: usize,
    /// How many rows the screen has; set when it is drawn.
    pub page: usize,
    selected: Option<Key>,
    search: String,
}

/// What was typed so far is at most this long.
const TYPED_MAX: usize = 64;

/// Puts something in or out; unless it is said, the other way than it is.
fn toggle<T: Eq + std::hash::Hash>(set: &mut HashSet<T>, of: T, put_in: Option<bool>) {
    if put_in.unwrap_or(!set.contains(&of)) {
        set.insert(of);
    } else {
        set.remove(&of);
    }
}

impl App {
    /// An empty screen.
    pub fn new(looks: Looks) -> Self {
        App {
            model: Model::default(),
            view: View::default(),
            mode: Mode::Table,
            looks,
            users: Users::default(),
            connection: Connection::Waiting,
            message: None,
            cursor: 0,
            offset: 0,
            page: 1,
            selected: None,
            search: String::new(),
        }
    }

    /// Takes in what the daemon said.
    pub fn take(&mut self, reading: Reading) {
        self.model.take(reading);
        self.connection = Connection::Up;
        self.follow();
    }

    /// The daemon does not answer.
    pub fn lost(&mut self, reason: String) {
        self.connection = Connection::Down(super::text::clean(&reason));
    }

    /// The answer to a change.
    pub fn answer(&mut self, text: &str) {
        self.message = Some(super::text::clean(text));
    }

    /// Puts the cursor where the selected row is now; where it has gone, leaves it at its place.
    fn follow(&mut self) {
        let lines = self.view.lines(self.model.snapshot());
        let place =
            self.selected.as_ref().and_then(|key| lines.iter().position(|line| line.row.key() == *key));
        let place = place.unwrap_or(self.cursor.min(lines.len().saturating_sub(1)));
        let key = lines.get(place).map(|line| line.row.key());
        self.cursor = place;
        self.selected = key.or(self.selected.take());
        self.scroll();
    }

    fn go_to(&mut self, place: usize) {
        let lines = self.view.lines(self.model.snapshot());
        let place = place.min(lines.len().saturating_sub(1));
        let key = lines.get(place).map(|line| line.row.key());
        self.cursor = place;
        self.selected = key;
        self.scroll();
    }

    /// Keeps the cursor on the screen, which is that many rows high.
    pub fn fit(&mut self, page: usize) {
        self.page = page.max(1);
        self.scroll();
    }

    fn scroll(&mut self) {
        self.offset = self.offset.clamp((self.cursor + 1).saturating_sub(self.page), self.cursor);
    }

    /// What a key does.
    pub fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Some(Action::Quit),
                KeyCode::Char('z') => return Some(Action::Suspend),
                KeyCode::Char('u') => {}
                _ => return None,
            }
        }
        match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => {
                self.message = None;
                self.table_key(key.code)
            }
            // Any key ends it.
            Mode::Help => None,
            Mode::Sort(place) => {
                self.sort_key(key.code, place);
                None
            }
            Mode::Prompt(purpose, text) => self.prompt_key(key, purpose, text),
            Mode::Kill(victim) => match key.code {
                KeyCode::Char('t') => Some(Action::Kill(victim, Signal::TERM)),
                KeyCode::Char('k') => Some(Action::Kill(victim, Signal::KILL)),
                _ => {
                    self.message = Some("nothing was ended".to_owned());
                    None
                }
            },
        }
    }

    fn table_key(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') | KeyCode::F(10) => return Some(Action::Quit),
            KeyCode::Up | KeyCode::Char('k') => self.go_to(self.cursor.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go_to(self.cursor + 1),
            KeyCode::PageUp => self.go_to(self.cursor.saturating_sub(self.page)),
            KeyCode::PageDown => self.go_to(self.cursor + self.page),
            KeyCode::Home => self.go_to(0),
            KeyCode::End => self.go_to(usize::MAX),
            KeyCode::F(1) | KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::F(3) | KeyCode::Char('/') => {
                self.mode = Mode::Prompt(Purpose::Search, String::new());
            }
            KeyCode::Char('n') => self.find_next(self.cursor + 1),
            KeyCode::F(4) | KeyCode::Char('\\') => {
                self.mode = Mode::Prompt(Purpose::Filter, self.view.filter.clone());
            }
            KeyCode::F(5) | KeyCode::Char('t') => {
                self.view.flat = !self.view.flat;
                self.follow();
            }
            KeyCode::F(6) | KeyCode::Char('s') => {
                let place = Column::ALL.iter().position(|column| *column == self.view.sort);
                self.mode = Mode::Sort(place.unwrap_or(0));
            }
            KeyCode::Char('I') => self.sort_by(self.view.sort),
            KeyCode::Char('<') => self.sort_by_neighbour(Column::ALL.len() - 1),
            KeyCode::Char('>') => self.sort_by_neighbour(1),
            KeyCode::Char('i') => {
                self.view.hide_idle = !self.view.hide_idle;
                self.follow();
            }
            KeyCode::Char(' ') | KeyCode::Enter => self.fold(None),
            KeyCode::Char('-') | KeyCode::Left => self.fold(Some(true)),
            KeyCode::Char('+' | '=') | KeyCode::Right => self.fold(Some(false)),
            KeyCode::Char('*') => self.fold_all(),
            KeyCode::Char('r') => self.ask_for_a_reservation(),
            KeyCode::F(9) | KeyCode::Char('x') => self.ask_whether_to_kill(),
            KeyCode::Char('H') => {
                self.view.threads = !self.view.threads;
                self.follow();
            }
            KeyCode::Char('G') => {
                self.view.kernel = !self.view.kernel;
                self.follow();
            }
            KeyCode::Esc if !self.view.filter.is_empty() => self.filter(String::new()),
            KeyCode::Char(letter) => {
                let column = Column::ALL.into_iter().find(|column| column.describe().0 == letter);
                column.into_iter().for_each(|column| self.sort_by(column));
            }
            _ => {}
        }
        None
    }

    fn sort_by(&mut self, column: Column) {
        self.view.sort_by(column);
        self.follow();
    }

    fn sort_by_neighbour(&mut self, step: usize) {
        let place = Column::ALL.iter().position(|column| *column == self.view.sort).unwrap_or(0);
        self.sort_by(Column::ALL[(place + step) % Column::ALL.len()]);
    }

    fn sort_key(&mut self, code: KeyCode, place: usize) {
        let count = Column::ALL.len();
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.mode = Mode::Sort((place + count - 1) % count),
            KeyCode::Down | KeyCode::Char('j') => self.mode = Mode::Sort((place + 1) % count),
            KeyCode::Enter | KeyCode::Char(' ') => self.sort_by(Column::ALL[place]),
            KeyCode::Esc | KeyCode::Char('q') | KeyCode::F(_) => {}
            KeyCode::Char(letter) => match Column::ALL.iter().find(|column| column.describe().0 == letter) {
                Some(column) => self.sort_by(*column),
                None => self.mode = Mode::Sort(place),
            },
            _ => self.mode = Mode::Sort(place),
        }
    }

    /// Folds or unfolds the selected row, or for a task that which it is in; unless it is said, the other way than it
    /// is.
    fn fold(&mut self, fold: Option<bool>) {
        let lines = self.view.lines(self.model.snapshot());
        let Some(line) = lines.get(self.cursor) else { return };
        // What it is in stands above it, and less deep. In the flat list a task is in nothing.
        let above = lines[..self.cursor].iter().rev().find(|above| above.depth < line.depth);
        let container = if matches!(line.row, Row::Task(_)) { above } else { Some(line) };
        let Some(key) = container.map(|line| line.row.key()) else { return };
        match &key {
            Key::Domain(name) => toggle(&mut self.view.folded, name.clone(), fold),
            Key::Process(pid) => toggle(&mut self.view.open, *pid, fold.map(|fold| !fold)),
            Key::Kernel(_) => self.view.kernel = !fold.unwrap_or(self.view.kernel),
            Key::Task(..) => return,
        }
        if self.view.lines(self.model.snapshot()).iter().all(|line| Some(line.row.key()) != self.selected) {
            self.selected = Some(key);
        }
        self.follow();
    }

    /// Folds all domains with tasks, or unfolds all when any is folded.
    fn fold_all(&mut self) {
        if self.view.folded.is_empty() {
            let snapshot = self.model.snapshot();
            let below_the_top = snapshot.domains.iter().filter(|row| row.domain.parent.is_some());
            self.view.folded = below_the_top.map(|row| row.domain.name.clone()).collect();
        } else {
            self.view.folded.clear();
        }
        self.follow();
    }

    fn filter(&mut self, text: String) {
        self.view.filter = text;
        self.follow();
    }

    fn find_next(&mut self, from: usize) {
        if self.search.is_empty() {
            return;
        }
        let found = View::find(&self.view.lines(self.model.snapshot()), &self.search, from);
        match found {
            Some(place) => self.go_to(place),
            None => self.message = Some(format!("no row has {:?} in its name", self.search)),
        }
    }

    fn ask_for_a_reservation(&mut self) {
        let lines = self.view.lines(self.model.snapshot());
        let Some(line) = lines.get(self.cursor) else { return };
        let target = match line.row {
            Row::Domain(row) => Target::Domain(row.domain.name.clone()),
            Row::Task(row) if row.task.tid != row.task.pid => {
                Target::Thread(row.task.tid, row.task.name.clone())
            }
            Row::Task(row) => Target::Process(row.task.pid, row.task.name.clone()),
            Row::Group(row) => match row.pid() {
                Some(pid) => Target::Process(pid, row.name.clone()),
                None => return self.choose_one("reserve for one of them"),
            },
        };
        self.mode = Mode::Prompt(Purpose::Reserve(target), String::new());
    }

    fn choose_one(&mut self, what: &str) {
        self.message = Some(format!("{what}: G shows them one by one"));
    }

    fn ask_whether_to_kill(&mut self) {
        let lines = self.view.lines(self.model.snapshot());
        let Some(line) = lines.get(self.cursor) else { return };
        let victim = match line.row {
            Row::Domain(row) => {
                let name = super::text::clean(&row.domain.name);
                self.message =
                    Some(format!("a process is ended, not a domain: steward domain remove {name} --kill"));
                return;
            }
            Row::Task(row) if row.kernel => {
                self.message = Some("a thread of the kernel cannot be ended".to_owned());
                return;
            }
            Row::Task(row) => Victim { tid: row.task.tid, pid: row.task.pid, name: row.task.name.clone() },
            Row::Group(row) => match row.pid() {
                Some(pid) => Victim { tid: pid, pid, name: row.name.clone() },
                None => {
                    self.message = Some("threads of the kernel cannot be ended".to_owned());
                    return;
                }
            },
        };
        self.mode = Mode::Kill(victim);
    }

    fn prompt_key(&mut self, key: KeyEvent, purpose: Purpose, mut text: String) -> Option<Action> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => {
                if purpose == Purpose::Filter {
                    self.filter(String::new());
                }
                return None;
            }
            KeyCode::Enter => return self.finish(purpose, text),
            KeyCode::F(3) if purpose == Purpose::Search => self.find_next(self.cursor + 1),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char('u') if control => text.clear(),
            KeyCode::Char(letter) if text.len() < TYPED_MAX && !letter.is_control() => text.push(letter),
            _ => {}
        }
        match purpose {
            Purpose::Search if key.code != KeyCode::F(3) => {
                self.search.clone_from(&text);
                self.message = None;
                self.find_next(self.cursor);
            }
            Purpose::Filter => self.filter(text.clone()),
            _ => {}
        }
        self.mode = Mode::Prompt(purpose, text);
        None
    }

    /// Enter was pressed.
    fn finish(&mut self, purpose: Purpose, text: String) -> Option<Action> {
        let Purpose::Reserve(target) = purpose else { return None };
        match self.change(&target, text.trim()) {
            Ok(change) => {
                self.message = Some("asking the daemon ...".to_owned());
                Some(Action::Change(change))
            }
            Err(fault) => {
                self.message = Some(fault);
                self.mode = Mode::Prompt(Purpose::Reserve(target), text);
                None
            }
        }
    }

    /// What was typed as a change; nothing typed takes the reservation away.
    fn change(&self, target: &Target, text: &str) -> Result<Change, String> {
        let (text, all) = match (target, text.strip_suffix(" all")) {
            (Target::Process(..), Some(text)) => (text.trim_end(), true),
            _ => (text, false),
        };
        let promise = if text.is_empty() { None } else { Some(parse_promise(text)?) };
        match (target, promise) {
            (Target::Process(pid, _) | Target::Thread(pid, _), None) => Ok(Change::Release(*pid)),
            (Target::Process(pid, _) | Target::Thread(pid, _), Some(Promise::Reservation(cpu))) => {
                // What is said of children and revocation stays as it is.
                let (inherit, revocable) = self.model.flags(*pid).unwrap_or((false, true));
                let inherit = inherit || all;
                Ok(Change::Set(api::Set {
                    pid: *pid,
                    cpu: to_api(cpu),
                    inherit: Some(inherit),
                    revocable: Some(revocable),
                    keep_if_refused: Some(false),
                    requests_at: None,
                }))
            }
            (Target::Process(..) | Target::Thread(..), Some(Promise::Fraction(_))) => {
                Err("a process gets CPU time in every period: write it as 5ms/30ms".to_owned())
            }
            (Target::Domain(_), Some(Promise::Reservation(_))) => {
                Err("a domain gets a fraction of what its parent has: write it as 30%".to_owned())
            }
            (Target::Domain(domain), fraction) => {
                let cpu = fraction.and_then(|promise| match promise {
                    Promise::Fraction(cpu) => Some(cpu),
                    Promise::Reservation(_) => None,
                });
                let reset = if cpu.is_none() { vec!["cpu".to_owned()] } else { Vec::new() };
                let settings = api::DomainSettings { cpu, reset, ..api::DomainSettings::default() };
                let domain = domain.clone();
                Ok(Change::Domain(Box::new(api::SetDomain { domain, settings, ..api::SetDomain::default() })))
            }
        }
    }
}

#[cfg(test)]
mod tests;
