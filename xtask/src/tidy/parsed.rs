//! A crate's modules and the names in their code: the graph that the rules of circles and layers
//! check.
//!
//! In: the sources of a crate, from its root along `mod`. Out: the tree of its modules, the types
//! that each declares, and every path that leads from one module to another. Code that only tests
//! compile is left out. A path is followed through `use`, so that a re-exported name also leads to
//! its origin. The arguments of a macro are read as tokens, in which paths of two segments or more
//! are found. Method calls on a value name no module.

use super::Tree;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// Index of a module in [`Crate::modules`].
pub(super) type ModuleId = usize;

/// A crate of the workspace.
pub(super) struct Crate {
    /// Name of its folder.
    pub(super) name: String,
    /// Modules, each after its parent; the first is the root.
    pub(super) modules: Vec<Module>,
}

#[derive(Default)]
pub(super) struct Module {
    /// Path after `crate::`; empty for the root.
    pub(super) path: String,
    pub(super) file: String,
    pub(super) types: Vec<Type>,
    parent: Option<ModuleId>,
    children: BTreeMap<String, ModuleId>,
    /// Names of its items, types or not.
    items: BTreeSet<String>,
    /// Paths that `use` imports, by the names they have here.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths of which `use` imports all names.
    globs: Vec<Vec<String>>,
    /// Paths in its code with their lines.
    named: Vec<(Vec<String>, usize)>,
}

/// A struct, enum, union, trait or alias.
pub(super) struct Type {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) visible: Visible,
}

/// Declared visibility of a type.
#[derive(Clone, Copy)]
pub(super) enum Visible {
    /// `pub`, `pub(crate)`.
    Crate,
    /// `pub(super)`, `pub(in ...)`.
    Parent,
    /// Private.
    Module,
}

/// A place where a module names another.
pub(super) struct Naming {
    pub(super) from: ModuleId,
    pub(super) to: ModuleId,
    pub(super) line: usize,
    pub(super) path: String,
}

/// Parses all crates of the workspace.
pub(super) fn crates(tree: &Tree) -> Result<Vec<Crate>, String> {
    let root_of = |path: &str| {
        let (folder, _) = path.split_once("/src/lib.rs").or_else(|| path.split_once("/src/main.rs"))?;
        let name = if folder == "xtask" { folder } else { folder.strip_prefix("crates/")? };
        Some(Crate::parse(name, path, &|path| tree.text(path)))
    };
    tree.sources().filter_map(|(path, _)| root_of(path)).collect()
}

/// Maximum number of modules that a path leads through.
const LONGEST_WAY: usize = 32;

impl Crate {
    /// Parses the crate whose root is the file `root`; `text_of` returns the text of a file, or
    /// None if it does not exist.
    pub(super) fn parse<'a>(
        name: &str,
        root: &str,
        text_of: &impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Crate, String> {
        let mut parsed = Crate { name: name.to_string(), modules: Vec::new() };
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let module = Module { file: root.to_string(), ..Module::default() };
        let text = text_of(root).ok_or_else(|| format!("{root}: is not there"))?;
        parsed.read(module, &items_of(root, text)?, folder, text_of)?;
        Ok(parsed)
    }

    /// Adds a module and its submodules, whose files are in `folder`.
    fn read<'a>(
        &mut self,
        module: Module,
        items: &[syn::Item],
        folder: &str,
        text_of: &impl Fn(&str) -> Option<&'a str>,
    ) -> Result<(), String> {
        let id = self.modules.len();
        let mut reader = Reader { module, submodules: Vec::new() };
        items.iter().for_each(|item| reader.visit_item(item));
        self.modules.push(reader.module);
        for inside in reader.submodules {
            let name = inside.ident.to_string();
            let child = self.modules.len();
            self.modules[id].children.insert(name.clone(), child);
            let Module { path, file, .. } = &self.modules[id];
            let path = if id == 0 { name.clone() } else { format!("{path}::{name}") };
            let folder = format!("{folder}/{name}");
            let in_file =
                |file: &str| Module { path, file: file.to_string(), parent: Some(id), ..Module::default() };
            if let Some((_, items)) = &inside.content {
                self.read(in_file(file), items, &folder, text_of)?;
            } else {
                let files = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
                let found = files.iter().find_map(|file| Some((file, text_of(file)?)));
                let (file, text) = found.ok_or_else(|| format!("{file}: `mod {name}` has no file"))?;
                self.read(in_file(file), &items_of(file, text)?, &folder, text_of)?;
            }
        }
        Ok(())
    }

    /// Returns every path that leads out of its module, once for each module that it leads through.
    pub(super) fn namings(&self) -> Vec<Naming> {
        let mut namings = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            for (path, line) in &module.named {
                let mut way = Vec::new();
                self.follow(from, path, &mut way);
                way.sort_unstable();
                way.dedup();
                for to in way.into_iter().filter(|to| *to != from) {
                    namings.push(Naming { from, to, line: *line, path: path.join("::") });
                }
            }
        }
        namings
    }

    /// Returns the two modules with one parent that contain `a` and `b`, or None if one of `a` and
    /// `b` contains the other.
    pub(super) fn siblings(&self, a: ModuleId, b: ModuleId) -> Option<(ModuleId, ModuleId)> {
        let (above_a, above_b) = (self.with_ancestors(a), self.with_ancestors(b));
        above_a.iter().zip(&above_b).find(|(a, b)| a != b).map(|(a, b)| (*a, *b))
    }

    pub(super) fn parent(&self, module: ModuleId) -> Option<ModuleId> {
        self.modules[module].parent
    }

    /// True if `inner` is `outer` or inside it.
    pub(super) fn lies_in(&self, inner: ModuleId, outer: ModuleId) -> bool {
        self.with_ancestors(inner).contains(&outer)
    }

    /// Returns the modules from the root to `module`.
    fn with_ancestors(&self, module: ModuleId) -> Vec<ModuleId> {
        let mut up: Vec<_> =
            std::iter::successors(Some(module), |module| self.modules[*module].parent).collect();
        up.reverse();
        up
    }

    /// Appends to `way` the modules that a path in the module `from` leads through.
    fn follow(&self, from: ModuleId, path: &[String], way: &mut Vec<ModuleId>) {
        let (mut module, mut rest) = (from, path);
        while let Some((first, behind)) = rest.split_first() {
            module = match first.as_str() {
                "crate" => 0,
                "self" => module,
                "super" => self.modules[module].parent.unwrap_or(0),
                name => {
                    way.push(module);
                    return self.look_up(module, name, behind, way);
                }
            };
            rest = behind;
        }
        way.push(module);
    }

    /// Looks up `name` in a module and follows the rest of the path from there.
    fn look_up(&self, module: ModuleId, name: &str, rest: &[String], way: &mut Vec<ModuleId>) {
        let holder = &self.modules[module];
        if let Some(child) = holder.children.get(name) {
            way.push(*child);
            if let Some((name, rest)) = rest.split_first() {
                self.look_up(*child, name, rest, way);
            }
        } else if holder.items.contains(name) {
            // The rest of the path is a variant or belongs to a type.
        } else if let Some(import) = holder.imports.get(name) {
            // The length is limited, because an import of another crate's name may resolve to
            // itself.
            if way.len() < LONGEST_WAY {
                self.follow(module, &[import.as_slice(), rest].concat(), way);
            }
        } else {
            for source in holder.globs.iter().filter_map(|glob| self.module_at(module, glob)) {
                let Module { items, imports, children, .. } = &self.modules[source];
                // A module counts only with a rest of the path, because a single name may be a
                // variable's.
                let brings = items.contains(name)
                    || imports.contains_key(name)
                    || children.contains_key(name) && !rest.is_empty();
                if brings && way.len() < LONGEST_WAY {
                    way.push(source);
                    self.look_up(source, name, rest, way);
                }
            }
        }
    }

    /// Returns the module that a path names.
    fn module_at(&self, from: ModuleId, path: &[String]) -> Option<ModuleId> {
        let mut at = from;
        for (index, segment) in path.iter().enumerate() {
            at = match segment.as_str() {
                "crate" if index == 0 => 0,
                "self" => at,
                "super" => self.modules[at].parent?,
                name => *self.modules[at].children.get(name)?,
            };
        }
        Some(at)
    }
}

fn items_of(file: &str, text: &str) -> Result<Vec<syn::Item>, String> {
    let parsed = syn::parse_file(text).map_err(|error| {
        format!("{file}:{}: is not Rust that tidy can read: {error}", error.span().start().line)
    })?;
    Ok(parsed.items)
}

/// Reads the items of one module.
struct Reader<'a> {
    module: Module,
    submodules: Vec<&'a syn::ItemMod>,
}

impl Reader<'_> {
    fn declare(&mut self, name: &syn::Ident, visibility: &syn::Visibility) {
        let visible = match visibility {
            syn::Visibility::Public(_) => Visible::Crate,
            syn::Visibility::Restricted(within) if within.path.is_ident("crate") => Visible::Crate,
            syn::Visibility::Restricted(_) => Visible::Parent,
            syn::Visibility::Inherited => Visible::Module,
        };
        let (name, line) = (name.to_string(), name.span().start().line);
        self.module.types.push(Type { name, line, visible });
    }

    /// Records the paths that a `use` names, and the names it gives them.
    fn import(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Name(name) => self.import_as(before, &name.ident, &name.ident),
            syn::UseTree::Rename(renamed) => self.import_as(before, &renamed.ident, &renamed.rename),
            syn::UseTree::Glob(glob) => {
                self.module.globs.push(before.clone());
                let line = glob.star_token.spans[0].start().line;
                self.module.named.push((before.clone(), line));
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, before));
            }
        }
    }

    fn import_as(&mut self, before: &[String], name: &syn::Ident, called: &syn::Ident) {
        let mut path = before.to_vec();
        let mut called = called.to_string();
        if name != "self" {
            path.push(name.to_string());
        } else if called == "self" {
            called = path.last().cloned().unwrap_or_default();
        }
        self.module.named.push((path.clone(), name.span().start().line));
        self.module.imports.insert(called, path);
    }

    /// Records the paths of at least two segments in the arguments of a macro.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        let mut end = |path: &mut Vec<String>, line| {
            if path.len() > 1 {
                self.module.named.push((std::mem::take(path), line));
            }
            path.clear();
        };
        let mut groups = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        end(&mut path, line);
                        line = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                token => {
                    end(&mut path, line);
                    colons = 0;
                    if let TokenTree::Group(group) = token {
                        groups.push(group.stream());
                    }
                }
            }
        }
        end(&mut path, line);
        groups.into_iter().for_each(|group| self.read_tokens(group));
    }
}

impl<'a> Visit<'a> for Reader<'a> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        use syn::Item;
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Mod(item) => (&item.attrs, None),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Use(item) => (&item.attrs, None),
            _ => return visit::visit_item(self, item),
        };
        if only_for_tests(attributes) {
            return;
        }
        self.module.items.extend(name.map(ToString::to_string));
        match item {
            Item::Enum(item) => self.declare(&item.ident, &item.vis),
            Item::Struct(item) => self.declare(&item.ident, &item.vis),
            Item::Trait(item) => self.declare(&item.ident, &item.vis),
            Item::Type(item) => self.declare(&item.ident, &item.vis),
            Item::Union(item) => self.declare(&item.ident, &item.vis),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        self.submodules.push(item);
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.import(&item.tree, &mut Vec::new());
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !only_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'a syn::Field) {
        if !only_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        if !only_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        if let Some(first) = path.segments.first() {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.module.named.push((segments, first.ident.span().start().line));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'a syn::Macro) {
        self.visit_path(&invoked.path);
        self.read_tokens(invoked.tokens.clone());
    }
}

/// True if the item with these attributes is compiled for tests only.
fn only_for_tests(attributes: &[syn::Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|cfg| cfg.parse_args::<syn::Meta>().ok()).any(|condition| needs_test(&condition))
}

fn needs_test(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test") || path.is_ident("doctest"),
        syn::Meta::List(list) => {
            let parse = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
            let parts = list.parse_args_with(parse).unwrap_or_default();
            match () {
                () if list.path.is_ident("all") => parts.iter().any(needs_test),
                () if list.path.is_ident("any") => !parts.is_empty() && parts.iter().all(needs_test),
                () => false,
            }
        }
        syn::Meta::NameValue(_) => false,
    }
}
