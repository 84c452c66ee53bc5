// Command generate writes ../src/schema/builtin.table: the facts about every built-in type of the
// Kubernetes API that the codec needs, derived from the type definitions that the Kubernetes project
// publishes as Go modules. The versions are pinned in go.mod; see README.md.
package main

import (
	"bufio"
	"flag"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
)

const header = `# Every built-in type of the Kubernetes API: names, numbers, types, markers.
#
# Written by codec/generate from the Go modules that its go.mod names; do not edit.
# One record a line; lines that begin with "#" do not count; columns are separated by one space.
#
#   package NAME            the OpenAPI package of what follows; a type is NAME.TYPE outside of it
#   enum TYPE VALUE|...     a string with one of these values (the empty one may be among them)
#   text TYPE               any string; the name is for errors of decoding
#   struct NAME.TYPE [atomic]   its fields follow; "atomic" is +structType=atomic
#    .kind KIND GV...       the struct is the body of KIND in these group/versions
#    .union FIELD MEMBER... one of these members is set; FIELD says which, "-" where none does
#    .embed NAME NUMBER [IN]   a protobuf message (field NUMBER, Go struct NAME) whose fields are flat in JSON; IN says
#                           which earlier .embed holds it (counted from 1); without, the struct itself does
#    FIELD NUMBER TYPE [FLAGS] [WORD=VALUE...]
#
# NUMBER is the protobuf number, 0 where protobuf does not carry the field.
# TYPE is a scalar (bool int32 int64 double string bytes quantity intorstring time microtime duration
# raw json fields any schemaorarray schemaorbool schemaorstrings), an enum, text or struct (with its package
# where that is another one), or [] (list), [m] (list in a protobuf message of its own), {} (map with
# string keys) before a type.
# FLAGS: ? omitempty, z omitzero, * pointer, ! required.
# WORDS: in=N held by the Nth .embed; default=JSON; patch=merge,replace,retainKeys; key=patch merge key;
# list=set or list=map:KEY,... (atomic is the rule without); map=atomic (+mapType or +structType).
`

func main() {
	out := flag.String("out", "../src/schema/builtin.table", "file to write")
	flag.Parse()

	scheme := runtime.NewScheme()
	for _, add := range groups {
		if err := add(scheme); err != nil {
			log.Fatal(err)
		}
	}
	walk := newWalk()
	for gvk, t := range scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			walk.kind(gvk, t)
		}
	}
	walk.finish()

	file, err := os.Create(*out)
	if err != nil {
		log.Fatal(err)
	}
	w := bufio.NewWriter(file)
	w.WriteString(header)
	for _, line := range walk.lines() {
		w.WriteString(line)
		w.WriteByte('\n')
	}
	if err := w.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
	log.Printf("%d structs, %d named strings -> %s", len(walk.structs), len(walk.texts), *out)
}
