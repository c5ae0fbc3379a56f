package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// typesMax is how long all types together may take to be served.
const typesMax = 2 * time.Minute

//go:embed types.json
var typesJSON []byte

// row is a type in types.json.
type row struct {
	Group      string   `json:"group"`
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular"`
	Kind       string   `json:"kind"`
	ShortNames []string `json:"shortNames"`
	Categories []string `json:"categories"`
	Namespaced bool     `json:"namespaced"`
	// Most preferred first; the first one is stored.
	Versions []string `json:"versions"`
	// Status is whether there is a status subresource.
	Status bool `json:"status"`
	// Spec has the types of the fields of spec that are declared; all others are kept too.
	Spec       map[string]string                                `json:"spec"`
	Selectable []string                                         `json:"selectable"`
	Columns    []apiextensionsv1.CustomResourceColumnDefinition `json:"columns"`
}

// declareTypes makes every type of types.json servable, and returns when all are served.
func declareTypes(ctx context.Context, s *server) error {
	ctx, cancel := context.WithTimeout(ctx, typesMax)
	defer cancel()
	var rows []row
	if err := json.Unmarshal(typesJSON, &rows); err != nil {
		return fmt.Errorf("types.json: %w", err)
	}
	config := rest.CopyConfig(s.kube.LoopbackClientConfig)
	config.QPS = -1
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := served(ctx, client, "/readyz"); err != nil {
		return err
	}
	for _, row := range rows {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, row.definition(), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("declaring %s.%s: %w", row.Plural, row.Group, err)
		}
	}
	for _, row := range rows {
		for _, version := range row.Versions {
			if err := served(ctx, client, fmt.Sprintf("/apis/%s/%s/%s", row.Group, version, row.Plural)); err != nil {
				return err
			}
		}
		s.kube.DiscoveryGroupManager.AddGroup(discovered(row.Group, rows))
	}
	return nil
}

// served waits until a path is answered with 200.
func served(ctx context.Context, client *clientset.Clientset, path string) error {
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		code := 0
		// Without retries of its own: it would wait a second for each type whose watch cache is not ready yet.
		client.Discovery().RESTClient().Get().AbsPath(path).MaxRetries(0).Do(ctx).StatusCode(&code)
		return code == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", path, err)
	}
	return nil
}

// definition is the type as a CustomResourceDefinition that keeps every field.
func (r row) definition() *apiextensionsv1.CustomResourceDefinition {
	scope := apiextensionsv1.ClusterScoped
	if r.Namespaced {
		scope = apiextensionsv1.NamespaceScoped
	}
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.Plural + "." + r.Group,
			// Groups of *.k8s.io are Kubernetes' own; with this they may be served in a test.
			Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, serves tests only"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: r.Group,
			Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: r.Plural, Singular: r.Singular, Kind: r.Kind, ListKind: r.Kind + "List",
				ShortNames: r.ShortNames, Categories: r.Categories,
			},
		},
	}
	for i, version := range r.Versions {
		definition.Spec.Versions = append(definition.Spec.Versions, r.version(version, i == 0))
	}
	return definition
}

func (r row) version(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
	keep := true
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep, Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for field, kind := range r.Spec {
		spec.Properties[field] = apiextensionsv1.JSONSchemaProps{Type: kind}
	}
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}
	if len(r.Spec) > 0 {
		schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}
	}
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true, Storage: stored,
		Schema:                   &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
		AdditionalPrinterColumns: r.Columns,
	}
	if r.Status {
		version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	}
	for _, path := range r.Selectable {
		version.SelectableFields = append(version.SelectableFields, apiextensionsv1.SelectableField{JSONPath: path})
	}
	return version
}

// discovered is a group as /apis lists it; in a whole kube-apiserver the aggregator writes this.
func discovered(name string, rows []row) metav1.APIGroup {
	group := metav1.APIGroup{Name: name}
	seen := map[string]bool{}
	for _, row := range rows {
		for _, version := range row.Versions {
			if row.Group == name && !seen[version] {
				seen[version] = true
				group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version})
			}
		}
	}
	group.PreferredVersion = group.Versions[0]
	return group
}
