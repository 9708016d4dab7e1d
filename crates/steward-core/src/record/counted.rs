//! What can be kept in a record.

/// What can be kept: sums over a stretch of time.
pub trait Counted: Copy + Default {
    /// What the record is called, in sentences.
    const NAME: &'static str;
    /// The first line of its file: what is counted, and the version of its numbers.
    const HEADER: &'static str;
    /// As many as there are, in the order of the file.
    type Numbers: AsRef<[u64]> + AsMut<[u64]>;

    /// Takes in what was counted in another stretch of time.
    fn add(&mut self, other: &Self);

    /// Its numbers.
    fn numbers(&self) -> Self::Numbers;

    /// The one with these numbers.
    fn of_numbers(numbers: Self::Numbers) -> Self;
}
