//! Which source file uses which, read from the sources themselves.
//!
//! A name is followed through re-exports to the file that defines it: a facade that only passes a name on
//! is not used. The head of a folder (its `mod.rs`) and the files below it are one thing: what they take
//! from it does not count, what it takes from them does. Nor do tests inside a file count, nor calls of
//! methods, which name no file. A macro is used like a function. A name in a module that makes items by a
//! macro, and that the module does not write itself, is an item of the macro.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// More segments than any path in the sources has.
const LONGEST: usize = 16;

/// Source files and who uses whom.
pub(super) struct Imports {
    /// Files below the root, by their paths from there.
    pub(super) files: Vec<PathBuf>,
    /// For each file those it uses, never itself.
    pub(super) used: Vec<BTreeSet<usize>>,
}

/// A module: a file, or one written within a file.
struct Module {
    parent: Option<usize>,
    file: usize,
    children: BTreeMap<String, usize>,
    defined: BTreeSet<String>,
    imported: Vec<(String, Vec<String>)>,
    globs: Vec<Vec<String>>,
    /// Paths of two segments or more that its code names, and names of macros that it invokes.
    named: Vec<Vec<String>>,
    /// Whether it invokes a macro in place of an item.
    makes_items: bool,
    /// Children whose macros are in scope for the modules after them.
    macro_scopes: Vec<usize>,
}

/// What was looked up on the way to one name: globs may lead back.
type Seen = BTreeSet<(usize, Vec<String>)>;

struct Modules {
    root: PathBuf,
    files: Vec<PathBuf>,
    all: Vec<Module>,
}

impl Imports {
    /// Of the crate whose sources are below `root` and begin with the file `head`.
    pub(super) fn of(root: &Path, head: &str) -> Self {
        let mut modules = Modules {
            root: root.to_owned(),
            files: Vec::new(),
            all: Vec::new(),
        };
        modules.file(None, &root.join(head));
        let mut used = vec![BTreeSet::new(); modules.files.len()];
        for (number, module) in modules.all.iter().enumerate() {
            let imported = module.imported.iter().map(|(_, path)| path);
            for path in imported.chain(&module.globs).chain(&module.named) {
                let in_scope = match path.as_slice() {
                    [name] if !module.defined.contains(name) => {
                        modules.macro_in_scope(number, name)
                    }
                    _ => None,
                };
                let defined = in_scope.or_else(|| modules.definer(number, path, &mut Seen::new()));
                if let Some(file) = defined
                    && file != module.file
                    && !modules.is_head_of(file, module.file)
                {
                    used[module.file].insert(file);
                }
            }
        }
        Self {
            files: modules.files,
            used,
        }
    }

    /// Groups of files that use one another, directly or not, each sorted.
    pub(super) fn circles(&self) -> Vec<Vec<&Path>> {
        let reached: Vec<BTreeSet<usize>> =
            (0..self.files.len()).map(|at| self.below(at)).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for at in 0..self.files.len() {
            let circle = reached[at]
                .iter()
                .filter(|other| reached[**other].contains(&at));
            let circle: Vec<usize> = circle.copied().collect();
            if circle.len() > 1 && circle.iter().all(|file| seen.insert(*file)) {
                circles.push(
                    circle
                        .iter()
                        .map(|file| self.files[*file].as_path())
                        .collect(),
                );
            }
        }
        circles
    }

    fn below(&self, start: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = vec![start];
        while let Some(file) = open.pop() {
            open.extend(self.used[file].iter().filter(|next| found.insert(**next)));
        }
        found
    }
}

impl Modules {
    /// Whether a file is the head (`mod.rs`, `lib.rs` or `main.rs`) of a folder in which another lies.
    fn is_head_of(&self, head: usize, other: usize) -> bool {
        let head = &self.files[head];
        let folder = head.parent().expect("a file has a folder");
        let is_head = ["mod.rs", "lib.rs", "main.rs"]
            .iter()
            .any(|name| head.ends_with(name));
        is_head && self.files[other].starts_with(folder)
    }

    fn file(&mut self, parent: Option<usize>, path: &Path) -> usize {
        let text =
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parsed =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let below = path.strip_prefix(&self.root).expect("it is below the root");
        self.files.push(below.to_owned());
        let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod" | "lib" | "main") => path.parent().expect("a file has a folder").to_owned(),
            _ => path.with_extension(""),
        };
        self.module(parent, self.files.len() - 1, &folder, &parsed.items)
    }

    fn module(
        &mut self,
        parent: Option<usize>,
        file: usize,
        folder: &Path,
        items: &[syn::Item],
    ) -> usize {
        let number = self.all.len();
        self.all.push(Module {
            parent,
            file,
            children: BTreeMap::new(),
            defined: BTreeSet::new(),
            imported: Vec::new(),
            globs: Vec::new(),
            named: Vec::new(),
            makes_items: false,
            macro_scopes: Vec::new(),
        });
        for item in items {
            match item {
                syn::Item::Mod(inner) => self.child(number, file, folder, inner),
                syn::Item::Use(leaf) => self.import(number, Vec::new(), &leaf.tree),
                other => {
                    let module = &mut self.all[number];
                    module.defined.extend(name_of(other));
                    module.makes_items |=
                        matches!(other, syn::Item::Macro(made) if made.ident.is_none());
                    Paths(&mut module.named).visit_item(other);
                }
            }
        }
        number
    }

    fn child(&mut self, parent: usize, file: usize, folder: &Path, inner: &syn::ItemMod) {
        let mut name = inner.ident.to_string();
        if is_for_tests(&inner.attrs) {
            return;
        }
        let child = match (&inner.content, path_of(&inner.attrs)) {
            (Some((_, items)), _) => self.module(Some(parent), file, &folder.join(&name), items),
            (None, Some(other)) => {
                // A stand-in for a module that is not built: beside it, not in its place.
                name.push_str(" (stand-in)");
                self.file(Some(parent), &folder.join(other))
            }
            (None, None) => {
                let flat = folder.join(format!("{name}.rs"));
                let deep = folder.join(&name).join("mod.rs");
                self.file(Some(parent), if flat.exists() { &flat } else { &deep })
            }
        };
        let parent = &mut self.all[parent];
        parent.children.insert(name, child);
        if inner
            .attrs
            .iter()
            .any(|one| one.path().is_ident("macro_use"))
        {
            parent.macro_scopes.push(child);
        }
    }

    fn import(&mut self, module: usize, mut path: Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.import(module, path, &step.tree);
            }
            syn::UseTree::Name(leaf) => {
                let mut name = leaf.ident.to_string();
                if name == "self" {
                    name = path.last().cloned().unwrap_or_default();
                } else {
                    path.push(name.clone());
                }
                self.all[module].imported.push((name, path));
            }
            syn::UseTree::Rename(leaf) => {
                if leaf.ident != "self" {
                    path.push(leaf.ident.to_string());
                }
                let name = leaf.rename.to_string();
                self.all[module].imported.push((name, path));
            }
            syn::UseTree::Glob(_) => self.all[module].globs.push(path),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(module, path.clone(), tree);
                }
            }
        }
    }

    /// The file that defines what a path names in a module; none if it is a module or another crate's.
    fn definer(&self, module: usize, path: &[String], seen: &mut Seen) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.within(0, rest, seen),
            "self" => self.within(module, rest, seen),
            "super" => self.definer_above(module, rest, seen),
            _ => self.within(module, path, seen),
        }
    }

    fn definer_above(&self, module: usize, path: &[String], seen: &mut Seen) -> Option<usize> {
        let parent = self.all[module].parent?;
        match path.first().map(String::as_str) {
            Some("super") => self.definer_above(parent, &path[1..], seen),
            _ => self.within(parent, path, seen),
        }
    }

    fn within(&self, module: usize, path: &[String], seen: &mut Seen) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        // A name may be that of a crate that it is imported from.
        if path.len() > LONGEST || !seen.insert((module, path.to_vec())) {
            return None;
        }
        let here = &self.all[module];
        if let Some(child) = here.children.get(first) {
            return self.within(*child, rest, seen);
        }
        if here.defined.contains(first) {
            return Some(here.file);
        }
        let named = here.imported.iter().filter(|(name, _)| name == first);
        let targets = named.map(|(_, target)| target.iter().chain(rest));
        let globs = here.globs.iter().map(|glob| glob.iter().chain(path));
        let targets = targets.chain(globs).map(|target| target.cloned().collect());
        let targets: Vec<Vec<String>> = targets.collect();
        let mut found = targets
            .iter()
            .filter_map(|target| self.definer(module, target, seen));
        found.next().or_else(|| {
            let is_module = here.imported.iter().any(|(name, _)| name == first);
            (here.makes_items && !is_module).then_some(here.file)
        })
    }

    /// The file of a macro that is in scope by its name alone.
    fn macro_in_scope(&self, module: usize, name: &str) -> Option<usize> {
        let parent = self.all[module].parent?;
        let mut scopes = self.all[parent].macro_scopes.iter();
        let defining = scopes.find(|scope| self.all[**scope].defined.contains(name));
        match defining {
            Some(scope) => Some(self.all[*scope].file),
            None => self.macro_in_scope(parent, name),
        }
    }
}

/// The paths that code names.
struct Paths<'a>(&'a mut Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        if segments.len() > 1 {
            self.0.push(segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        let text = invoked.tokens.to_string().replace(" :: ", "::");
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for word in text
            .split(|c| !is_part(c))
            .filter(|word| word.contains("::"))
        {
            let segments: Vec<String> = word.split("::").map(str::to_owned).collect();
            self.0.push(segments);
        }
        for (before, _) in text.match_indices(" !") {
            let name = text[..before].rsplit(|c| !is_part(c)).next();
            self.0.extend(name.map(|name| vec![name.to_owned()]));
        }
        self.0
            .extend(invoked.path.get_ident().map(|name| vec![name.to_string()]));
        visit::visit_macro(self, invoked);
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}
}

fn name_of(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|name| name == "test")
    })
}

/// The file of a `#[path = "…"]`.
fn path_of(attributes: &[syn::Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|one| one.path().is_ident("path"))?;
    let syn::Expr::Lit(literal) = &attribute.meta.require_name_value().ok()?.value else {
        return None;
    };
    match &literal.lit {
        syn::Lit::Str(text) => Some(text.value()),
        _ => None,
    }
}
