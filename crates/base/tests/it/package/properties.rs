//! Property tests of file names, licences and references with arbitrary strings.

use std::path::{Component, Path};

use pkgtool_base::package::naming::ExpectedName;
use pkgtool_base::package::{Backend, license, reference};
use proptest::prelude::*;

proptest! {
    #[test]
    fn references_never_leave_the_root(
        reference in prop_oneof![
            any::<String>(),
            r"(\.\.|\.|a|é|/|//|\\|:|\.\.\.| ){0,12}",
        ],
        depth in 0..4_usize,
    ) {
        let root = Path::new("/repo");
        let directory = ["a", "b", "c"][..depth.min(3)].iter().fold(root.to_owned(), |p, d| p.join(d));
        if let Ok(path) = reference::resolve(&directory, depth.min(3), &reference) {
            prop_assert!(path.starts_with(root), "{reference:?} gave {path:?}");
            prop_assert!(path != root, "{reference:?} is the root itself");
            let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
            prop_assert!(path.components().all(plain), "{path:?}");
        }
    }

    #[test]
    fn names_and_licences_do_not_panic(
        name in any::<String>(), model in any::<String>(), token in any::<String>(),
    ) {
        license::classify(&name);
        for backend in Backend::ALL {
            let expected = ExpectedName {
                model: Some(&model), size: None, component: Some(&name), backend, precision: &token,
            };
            let _ = expected.check(&name, [token.as_str(), ""].into_iter());
            let _ = expected.check(&expected.name(&token), std::iter::once(name.as_str()));
        }
    }

    #[test]
    fn licence_expressions_do_not_panic(text in r"([A-Za-z0-9.+:-]{0,4}|\(|\)| |MIT|AND|OR|WITH|LicenseRef-|DocumentRef-|GPL-2.0){0,12}") {
        license::classify(&text);
    }
}
