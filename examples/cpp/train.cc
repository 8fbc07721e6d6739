// Fits a small network to a sine on the device, without Python. Prints the loss and the device's answer for pi / 2.
#include <torch/torch.h>
#include <torch_tpu/torch_tpu.h>

#include <cmath>
#include <iostream>

int main() {
  torch_tpu::load();
  const torch::Device tpu("tpu");
  torch::manual_seed(0);

  torch::nn::Sequential model(torch::nn::Linear(1, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  model->to(tpu);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));

  const torch::Tensor x = torch::linspace(-M_PI, M_PI, 256, tpu).unsqueeze(1);
  const torch::Tensor y = x.sin();
  torch::Tensor loss;
  for (int step = 0; step < 500; ++step) {
    optimizer.zero_grad();
    loss = torch::nn::functional::mse_loss(model->forward(x), y);
    loss.backward();
    optimizer.step();
  }

  const torch::NoGradGuard no_grad;
  const float answer = model->forward(torch::full({1, 1}, M_PI / 2, tpu)).item<float>();
  std::cout << "loss " << loss.item<float>() << ", sin(pi / 2) is about " << answer << '\n';
  const bool fits = loss.item<float>() < 1e-2;
  torch_tpu::shut_down();
  return fits ? 0 : 1;
}
