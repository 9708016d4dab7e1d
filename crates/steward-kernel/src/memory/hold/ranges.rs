//! Sets of pages as ranges of page numbers.

use std::ops::Range;

/// A set of pages: ascending ranges of page numbers that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRanges {
    list: Vec<Range<u64>>,
}

impl PageRanges {
    /// Takes ranges that ascend; those that overlap or touch become one, and empty ones are left out.
    pub fn ascending(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut all = PageRanges::default();
        for range in ranges {
            all.push(range, 0);
        }
        all
    }

    /// The pages in any of these.
    pub fn all_of<'all>(sets: impl Iterator<Item = &'all PageRanges>) -> Self {
        let mut ranges: Vec<Range<u64>> = sets.flat_map(PageRanges::iter).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        PageRanges::ascending(ranges)
    }

    /// One range.
    pub fn of(range: Range<u64>) -> Self {
        PageRanges::ascending([range])
    }

    /// Adds a range that starts no earlier than the last one, together with what is between them where that is at most
    /// `gap` pages.
    fn push(&mut self, range: Range<u64>, gap: u64) {
        if range.is_empty() {
            return;
        }
        match self.list.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap) => last.end = last.end.max(range.end),
            _ => self.list.push(range),
        }
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.list.iter().cloned()
    }

    /// How many ranges.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// How many pages.
    pub fn pages(&self) -> u64 {
        self.list.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether all pages of the other are in this one.
    pub fn has_all(&self, other: &PageRanges) -> bool {
        other.list.iter().all(|range| {
            let after = self.list.partition_point(|own| own.start <= range.start);
            after > 0 && range.end <= self.list[after - 1].end
        })
    }

    /// From the first page to behind the last.
    pub fn extent(&self) -> Range<u64> {
        match (self.list.first(), self.list.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        }
    }

    /// The pages in either.
    pub fn union(&self, other: &PageRanges) -> PageRanges {
        self.combine(other, |here, there| here || there)
    }

    /// The pages of this one that are not in the other.
    pub fn minus(&self, other: &PageRanges) -> PageRanges {
        self.combine(other, |here, there| here && !there)
    }

    /// The pages in both.
    pub fn common(&self, other: &PageRanges) -> PageRanges {
        self.combine(other, |here, there| here && there)
    }

    /// With the pages between ranges that are at most `gap` pages apart.
    pub fn close_gaps(&self, gap: u64) -> PageRanges {
        let mut closed = PageRanges::default();
        for range in self.iter() {
            closed.push(range, gap);
        }
        closed
    }

    /// With gaps closed, the smaller ones first, until there are at most so many ranges.
    pub fn coarse(self, ranges_max: usize) -> PageRanges {
        let (mut coarse, mut gap) = (self, 1);
        while coarse.count() > ranges_max.max(1) {
            coarse = coarse.close_gaps(gap);
            gap *= 2;
        }
        coarse
    }

    /// The first pages, so many of them.
    pub fn first(&self, pages: u64) -> PageRanges {
        let mut left = pages;
        PageRanges::ascending(self.iter().map_while(|range| {
            let taken = left.min(range.end - range.start);
            left -= taken;
            (taken > 0).then(|| range.start..range.start + taken)
        }))
    }

    /// Goes over all boundaries of both; `keep` says of a page which is in this one and which in the other.
    fn combine(&self, other: &PageRanges, keep: impl Fn(bool, bool) -> bool) -> PageRanges {
        let (mut here, mut there) = (Edges::of(&self.list), Edges::of(&other.list));
        let mut kept = PageRanges::default();
        let mut from = 0;
        loop {
            let to = here.next.min(there.next);
            if keep(here.inside, there.inside) {
                kept.push(from..to, 0);
            }
            if to == u64::MAX {
                return kept;
            }
            from = to;
            here.pass(to);
            there.pass(to);
        }
    }
}

/// A walk over the boundaries of ranges.
struct Edges<'ranges> {
    left: std::slice::Iter<'ranges, Range<u64>>,
    current: Option<&'ranges Range<u64>>,
    inside: bool,
    /// The next boundary; the last of all numbers behind the last range.
    next: u64,
}

impl<'ranges> Edges<'ranges> {
    fn of(list: &'ranges [Range<u64>]) -> Self {
        let mut left = list.iter();
        let current = left.next();
        Edges { left, current, inside: false, next: current.map_or(u64::MAX, |range| range.start) }
    }

    /// Goes past the boundary at `page`, if it is one of these ranges.
    fn pass(&mut self, page: u64) {
        if self.next != page {
            return;
        }
        if self.inside {
            self.current = self.left.next();
        }
        self.inside = !self.inside;
        let boundary = |range: &Range<u64>| if self.inside { range.end } else { range.start };
        self.next = self.current.map_or(u64::MAX, boundary);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn of_set(pages: &BTreeSet<u64>) -> PageRanges {
        PageRanges::ascending(pages.iter().map(|page| *page..page + 1))
    }

    fn set_of(ranges: &PageRanges) -> BTreeSet<u64> {
        ranges.iter().flatten().collect()
    }

    fn pages() -> impl Strategy<Value = BTreeSet<u64>> {
        proptest::collection::btree_set(0u64..80, 0..50)
    }

    proptest! {
        #[test]
        fn coarse_ranges_are_few_and_have_all_pages_in_the_same_extent(a in pages(), ranges_max in 0usize..60) {
            let all = of_set(&a);
            let coarse = all.clone().coarse(ranges_max);
            prop_assert!(coarse.has_all(&all) && coarse.extent() == all.extent());
            prop_assert!(coarse.count() <= ranges_max.max(1));
            prop_assert!(all.count() > ranges_max.max(1) || coarse == all);
        }

        #[test]
        fn ranges_are_to_each_other_as_the_sets_of_their_pages(a in pages(), b in pages(), length in 0u64..80) {
            let (left, right) = (of_set(&a), of_set(&b));
            prop_assert_eq!(left.pages(), a.len() as u64);
            prop_assert_eq!(left.union(&right), of_set(&(&a | &b)));
            prop_assert_eq!(PageRanges::all_of([&left, &right].into_iter()), of_set(&(&a | &b)));
            prop_assert_eq!(left.minus(&right), of_set(&(&a - &b)));
            prop_assert_eq!(left.common(&right), of_set(&(&a & &b)));
            prop_assert_eq!(left.has_all(&right), a.is_superset(&b));
            prop_assert!(left.union(&right).has_all(&right));
            prop_assert_eq!(set_of(&left.first(length)), a.iter().copied().take(length as usize).collect());
        }

        #[test]
        fn closing_gaps_adds_exactly_the_gaps_that_are_small_enough(a in pages(), gap in 0u64..6) {
            let closed = set_of(&of_set(&a).close_gaps(gap));
            for page in 0..81 {
                let before = a.range(..=page).next_back();
                let after = a.range(page..).next();
                let is_in_gap = before.zip(after).is_some_and(|(before, after)| after - before <= gap + 1);
                prop_assert_eq!(closed.contains(&page), a.contains(&page) || is_in_gap, "page {}", page);
            }
        }
    }
}
