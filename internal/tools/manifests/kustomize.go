package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The files of a base for kustomize.
const (
	manifestsFile     = "manifests.yaml"
	kustomizationFile = "kustomization.yaml"
	namesFile         = "names.yaml"
)

// mark begins each file of a base. Base overwrites no file without it.
const mark = "# Written by gorovod k8s render, which overwrites it. Put your changes into an overlay of kustomize.\n"

// kustomization is the part of kustomize's file that a base needs.
type kustomization struct {
	APIVersion     string `yaml:"apiVersion"`
	Kind           string
	Resources      []string
	Configurations []string
}

// Base returns the manifests as the files of a base for kustomize. j must have passed Check. The job gets a runtime of
// its own, because overlays rename and move all objects of a base, and a shared runtime belongs to no base.
func (j *Job) Base() (map[string][]byte, error) {
	apart := *j
	apart.Apart = true
	return apart.base()
}

func (j *Job) base() (map[string][]byte, error) {
	stream, err := j.stream()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{manifestsFile: append([]byte(mark), stream...)}
	for name, content := range map[string]any{
		kustomizationFile: kustomization{APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization",
			Resources: []string{manifestsFile}, Configurations: []string{namesFile}},
		namesFile: j.transformers(),
	} {
		text, err := encode(content)
		if err != nil {
			return nil, err
		}
		files[name] = append([]byte(mark), text...)
	}
	return files, nil
}

// partial is the name of a file until it is whole.
func partial(dir, name string) string { return filepath.Join(dir, "."+name+".partial") }

// WriteBase writes the files of Base into dir, which it makes if necessary. It overwrites only files that begin with
// mark; if another file has one of these names, it writes nothing. Each file gets its content whole or not at all, so
// that WriteBase can be repeated after a failure.
func (j *Job) WriteBase(dir string) error {
	files, err := j.Base()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name := range files {
		switch there, err := os.ReadFile(filepath.Join(dir, name)); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !strings.HasPrefix(string(there), mark):
			return fmt.Errorf("%s is there, and render has not written it: give another folder, or remove the file",
				filepath.Join(dir, name))
		}
	}
	for name, text := range files {
		defer os.Remove(partial(dir, name))
		if err := create(partial(dir, name), text); err != nil {
			return err
		}
	}
	for name := range files {
		if err := os.Rename(partial(dir, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// create makes a new file, in the place of one that an interrupted run has left.
func create(path string, text []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
