//! Incremental and from scratch, over random histories: the same set.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    PutCrd { cell: usize, variant: usize },
    DeleteCrd { cell: usize },
    PutWidget { cell: usize, version: usize, name: usize },
    DeleteWidget { cell: usize, name: usize },
}

const CELLS: [(&str, &str); 5] =
    [AMBER_ROOT, AMBER_ACME, BERYL_ROOT, ("amber", "system:system-crds"), ("beryl", "system:system-crds")];
const NAMES: [&str; 2] = ["one", "two"];
const VERSIONS: [&str; 2] = ["v1", "v2"];

fn op() -> impl Strategy<Value = Op> {
    let cell = 0..CELLS.len();
    prop_oneof![
        3 => (cell.clone(), 0..4_usize).prop_map(|(cell, variant)| Op::PutCrd { cell, variant }),
        2 => cell.clone().prop_map(|cell| Op::DeleteCrd { cell }),
        3 => (cell.clone(), 0..VERSIONS.len(), 0..NAMES.len())
            .prop_map(|(cell, version, name)| Op::PutWidget { cell, version, name }),
        3 => (cell, 0..NAMES.len()).prop_map(|(cell, name)| Op::DeleteWidget { cell, name }),
    ]
}

impl Op {
    fn change(&self) -> Change {
        match *self {
            Self::PutCrd { cell, variant } => {
                let versions: &[&str] = [&["v1!"][..], &["v1", "v2!"], &["v2!"], &["v1"]][variant];
                put_crd(CELLS[cell], &crd(versions))
            }
            Self::DeleteCrd { cell } => delete_crd(CELLS[cell]),
            Self::PutWidget { cell, version, name } => {
                put_widget(CELLS[cell], VERSIONS[version], NAMES[name])
            }
            Self::DeleteWidget { cell, name } => delete_widget(CELLS[cell], NAMES[name]),
        }
    }
}

/// Both sets serve the same types at every scope, described alike unless the description is gone.
fn same(followed: &Types, derived: &Types) -> Result<(), TestCaseError> {
    for shard in ["*", "amber", "beryl", "citrine"] {
        for cluster in ["*", "root", "acme", "system:system-crds"] {
            let (shard, cluster) = (part(shard), part(cluster));
            let followed_info = followed.described(&widgets(), &shard, &cluster);
            let derived_info = derived.described(&widgets(), &shard, &cluster);
            let is_leftover =
                derived.declared.get(&widgets()).is_some_and(|d| d.leftover_cells().next().is_some());
            if is_leftover {
                prop_assert_eq!(followed_info.map(|i| &i.kind), derived_info.map(|i| &i.kind));
            } else {
                prop_assert_eq!(followed_info, derived_info);
            }
        }
    }
    prop_assert_eq!(followed.counts(), derived.counts());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn following_commits_gives_what_deriving_from_scratch_gives(
        batches in prop::collection::vec(prop::collection::vec(op(), 1..4), 1..24),
        configured in any::<bool>(),
    ) {
        let yaml = "types: [{group: example.io, versions: [v3], resource: widgets, kind: Widget}]";
        let config = if configured { config::parse(yaml).expect("legal") } else { Vec::new() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut lab = Lab::new(config.clone());
            for batch in &batches {
                let Some(commit) = lab.commit(batch.iter().map(Op::change).collect()).await else { continue };
                let derived = Types::builtin(config.clone()).at(&commit.state);
                same(&lab.types, &derived)?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}
