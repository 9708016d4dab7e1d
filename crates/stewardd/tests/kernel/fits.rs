//! Protected programs that do not fit together, and what they use that is charged to somebody else.

use steward_machine::MachineConfig;

use super::transcript::counted;
use super::{Transcript, check, figure};

/// What one keeps, what is charged to it, and what of it is in the swap, in MiB.
fn memory_mib(text: &str, name: &str) -> [i64; 3] {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
    let numbers: Vec<i64> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("three numbers are expected: {line}"))
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn the_largest_of_those_that_do_not_fit_is_demoted_whole_and_what_others_read_first_is_kept() {
    let config = MachineConfig { disk_mib: Some(450), ..counted(512) };
    let told = Transcript::in_machine(config, include_str!("fits.sh"));
    let kept = |section: &str| ["large", "middle", "small"].map(|name| memory_mib(&told.text(section), name));
    let changes = |section: &str| -> Vec<String> {
        let is_change = |line: &&str| line.ends_with(" not") || line.ends_with(" protected");
        told.text(section).lines().filter(is_change).map(str::to_owned).collect()
    };
    check(&[
        ("those-that-fit-are-kept-whole", &|| {
            let text = told.text("fit");
            for [kept, has, swapped] in ["large", "middle"].map(|name| memory_mib(&text, name)) {
                assert!(kept >= has && swapped == 0, "{text}");
            }
        }),
        ("the-largest-is-demoted-as-a-whole-and-nobody-else", &|| {
            let [large, middle, small] = kept("larger");
            assert!(
                large[0] == 0 && middle[0] >= middle[1] && small[0] >= small[1],
                "{}",
                told.text("larger")
            );
            assert_eq!(changes("larger"), ["large not"]);
        }),
        ("it-is-said-by-an-event-an-explanation-and-what-is-shown", &|| {
            told.says("larger", &["The memory of large is not protected for now", "does not fit into"]);
            told.says("explained", &["Not all of that is in force now: too much is protected"]);
            told.says(
                "explained",
                &["nothing for now: what protected domains use does not fit", "\"kept\":0"],
            );
        }),
        ("it-pays-with-the-others-and-those-that-fit-do-not", &|| {
            let [large, middle, small] = kept("hog");
            assert!(large[2] >= 20 && middle[2] == 0 && small[2] == 0, "{}", told.text("hog"));
        }),
        ("with-less-room-the-next-largest-follows", &|| {
            let [large, middle, small] = kept("less");
            assert!(large[0] == 0 && middle[0] == 0 && small[0] >= small[1], "{}", told.text("less"));
            assert_eq!(changes("less"), ["large not", "middle not"]);
        }),
        ("whoever-fits-again-comes-back-the-largest-last", &|| {
            assert_eq!(kept("more")[0][0], 0);
            let of_others = changes("more").into_iter().filter(|change| !change.starts_with("small"));
            let expected = ["large not", "middle not", "middle protected", "large protected"];
            assert_eq!(of_others.collect::<Vec<_>>(), expected);
        }),
        (
            "who-takes-all-of-it-at-once-has-those-that-fit-kept-a-little-later-and-nothing-swapped-meanwhile",
            &|| {
                let [large, middle, small] = kept("once");
                assert!(
                    large[0] == 0 && middle[0] >= middle[1] && small[0] >= small[1],
                    "{}",
                    told.text("once")
                );
                assert!(middle[2] == 0 && small[2] == 0, "{}", told.text("once"));
            },
        ),
        ("a-file-that-another-cgroup-read-first-is-held-and-not-taken-from-that-one", &|| {
            let (shared, reclaimed) = (told.text("shared"), told.text("reclaimed"));
            assert!(figure(&shared.replace(" MiB", ""), "held ") >= 23, "{shared}");
            assert!(figure(&reclaimed.replace(" MiB", ""), "charged to the first ") >= 23, "{reclaimed}");
        }),
        ("nothing-of-it-is-read-again-while-all-memory-is-taken-and-when-that-cgroup-ends", &|| {
            let text = told.text("ended");
            let faults: Vec<i64> =
                text.lines().filter_map(|line| line.strip_prefix("m ")?.parse().ok()).collect();
            assert!(text.starts_with("gone") && faults.len() >= 6, "{text}");
            // The first key finds the file read by the other one, and its own memory new.
            assert!(faults.iter().all(|count| *count == 0), "{text}");
            assert!(figure(&text.replace(" MiB", ""), "of the book in memory: ") >= 23, "{text}");
        }),
        ("a-stopped-daemon-leaves-nothing", &|| told.says("stopped", &["exit code 0 0"])),
    ]);
}
