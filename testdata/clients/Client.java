import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Requests with java.net.http: Client.java [METHOD URL]… */
public class Client {
    public static void main(String[] args) throws InterruptedException {
        HttpClient client = HttpClient.newHttpClient();
        for (int i = 0; i + 1 < args.length; i += 2) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(args[i + 1]))
                .method(args[i], HttpRequest.BodyPublishers.noBody()).build();
            try {
                HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                System.out.println(answer.body());
                System.out.println("=== " + answer.statusCode()
                    + (answer.version() == HttpClient.Version.HTTP_2 ? " 2" : " 1.1"));
            } catch (IOException error) {
                System.out.println(error);
                System.out.println("=== error java.net.http");
            }
        }
    }
}
